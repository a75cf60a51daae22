/*
 * From what went wrong to an errno: the only such table of the program.
 * Nothing unknown ever becomes ENOENT. Pure; negative errnos throughout.
 */
#pragma once

#include <curl/curl.h>

#include "util.h"

/* A CURLcode other than CURLE_OK; os_errno from CURLINFO_OS_ERRNO or 0. */
int status_from_curl(CURLcode code, long os_errno);

/*
 * An HTTP status that is not 2xx, when the body said nothing better. A bare
 * 404 is a missing route: -EOPNOTSUPP.
 */
int status_from_http(int status);

/*
 * What a server says of a failure. 0 if unknown (or NULL); an errno that must
 * not be passed on becomes another: ENOSYS would make the kernel give up the
 * operation for good, ECANCELED is ours.
 */

/* error_type of a FileOperationError, or code of a watch error. */
int status_from_error_type(const char *error_type);
/* errno_name ("ENOENT"). */
int status_from_errno_name(const char *name);
/* A number called errno: whole and one of Linux. */
int status_from_errno(double number);
/*
 * Words: sentences that servers are known to begin so ("File does not exist: …",
 * "Path is not a file: …", "Session not found"…), else the first "[Errno N]",
 * else strerror text at the start or after the last colon.
 */
int status_from_message(const char *message);

/*
 * What a command in the C locale said on stderr ("mv: cannot move 'a' to 'b':
 * Directory not empty") and its exit code. Never 0: -EIO if unknown, -EOPNOTSUPP
 * for a tool or an option that is not there (126 and 127 whatever it said).
 */
int status_from_command(const char *err, size_t len, int exit_code);

/*
 * The same of find, started at "." or at "./name", which ends with 1 whatever went wrong. The
 * errno if it was find itself (the directory cannot be read, the output cannot be written), 0 if it
 * was something below: then ret_incomplete becomes true, unless that was only taken away
 * before find could look at it.
 */
int status_from_find(const char *err, size_t len, int exit_code, bool *ret_incomplete) MUST_CHECK;
