/* From failures to errnos: a case for every row of every table, hostile words, real tools. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "run_bash.h"
#include "shellquote.h"
#include "status.h"

static void curl_codes(void **state)
{
	static const struct {
		CURLcode code;
		long os_errno;
		int want;
	} rows[] = {
		{ CURLE_COULDNT_CONNECT, 0, -ECONNREFUSED },
		{ CURLE_COULDNT_CONNECT, ECONNREFUSED, -ECONNREFUSED },
		{ CURLE_COULDNT_CONNECT, ECONNRESET, -ECONNREFUSED }, /* died before it took it */
		{ CURLE_COULDNT_CONNECT, ECONNABORTED, -ECONNREFUSED },
		{ CURLE_COULDNT_CONNECT, ENETDOWN, -ENETDOWN },
		{ CURLE_COULDNT_CONNECT, ENETUNREACH, -ENETUNREACH },
		{ CURLE_COULDNT_CONNECT, EHOSTDOWN, -EHOSTDOWN },
		{ CURLE_COULDNT_CONNECT, EHOSTUNREACH, -EHOSTUNREACH },
		{ CURLE_COULDNT_CONNECT, ETIMEDOUT, -ETIMEDOUT },
		{ CURLE_COULDNT_CONNECT, EADDRNOTAVAIL, -EADDRNOTAVAIL },
		{ CURLE_COULDNT_CONNECT, ENOENT, -ECONNREFUSED }, /* no such socket */
		{ CURLE_COULDNT_CONNECT, EACCES, -ECONNREFUSED },
		{ CURLE_COULDNT_CONNECT, -1, -ECONNREFUSED },
		{ CURLE_COULDNT_CONNECT, 1l << 40, -ECONNREFUSED },
		{ CURLE_PROXY, 0, -ECONNREFUSED },
		{ CURLE_COULDNT_RESOLVE_HOST, 0, -EHOSTUNREACH },
		{ CURLE_COULDNT_RESOLVE_PROXY, 0, -EHOSTUNREACH },
		{ CURLE_OPERATION_TIMEDOUT, 0, -ETIMEDOUT },
		{ CURLE_GOT_NOTHING, 0, -ECONNRESET },
		{ CURLE_RECV_ERROR, 0, -ECONNRESET },
		{ CURLE_RECV_ERROR, ENOENT, -ECONNRESET },
		{ CURLE_SEND_ERROR, EPIPE, -ECONNRESET },
		{ CURLE_SEND_FAIL_REWIND, 0, -ECONNRESET },
		{ CURLE_NO_CONNECTION_AVAILABLE, 0, -EAGAIN },
		{ CURLE_PARTIAL_FILE, 0, -EIO },
		{ CURLE_PEER_FAILED_VERIFICATION, 0, -EKEYREJECTED },
		{ CURLE_SSL_CERTPROBLEM, 0, -EKEYREJECTED },
		{ CURLE_SSL_CLIENTCERT, 0, -EKEYREJECTED },
		{ CURLE_SSL_CACERT_BADFILE, 0, -EKEYREJECTED },
		{ CURLE_SSL_CRL_BADFILE, 0, -EKEYREJECTED },
		{ CURLE_SSL_ISSUER_ERROR, 0, -EKEYREJECTED },
		{ CURLE_SSL_PINNEDPUBKEYNOTMATCH, 0, -EKEYREJECTED },
		{ CURLE_SSL_INVALIDCERTSTATUS, 0, -EKEYREJECTED },
		{ CURLE_SSL_CONNECT_ERROR, 0, -EPROTO },
		{ CURLE_SSL_CIPHER, 0, -EPROTO },
		{ CURLE_SSL_ENGINE_NOTFOUND, 0, -EPROTO },
		{ CURLE_SSL_ENGINE_SETFAILED, 0, -EPROTO },
		{ CURLE_SSL_ENGINE_INITFAILED, 0, -EPROTO },
		{ CURLE_SSL_SHUTDOWN_FAILED, 0, -EPROTO },
		{ CURLE_USE_SSL_FAILED, 0, -EPROTO },
		{ CURLE_TOO_MANY_REDIRECTS, 0, -EPROTO },
		{ CURLE_UNSUPPORTED_PROTOCOL, 0, -EBADMSG },
		{ CURLE_WEIRD_SERVER_REPLY, 0, -EBADMSG },
		{ CURLE_BAD_CONTENT_ENCODING, 0, -EBADMSG },
		{ CURLE_RANGE_ERROR, 0, -EBADMSG },
		{ CURLE_HTTP2, 0, -EBADMSG },
		{ CURLE_HTTP2_STREAM, 0, -EBADMSG },
		{ CURLE_FILESIZE_EXCEEDED, 0, -EMSGSIZE },
#if LIBCURL_VERSION_NUM >= 0x080600
		{ CURLE_TOO_LARGE, 0, -EMSGSIZE },
#endif
		{ CURLE_LOGIN_DENIED, 0, -EACCES },
		{ CURLE_AUTH_ERROR, 0, -EACCES },
		{ CURLE_REMOTE_ACCESS_DENIED, 0, -EACCES },
		{ CURLE_URL_MALFORMAT, 0, -EINVAL },
		{ CURLE_OUT_OF_MEMORY, 0, -ENOMEM },
		{ CURLE_ABORTED_BY_CALLBACK, 0, -ECANCELED },
		/* unknown, or impossible here */
		{ CURLE_REMOTE_FILE_NOT_FOUND, 0, -EIO },
		{ CURLE_TFTP_NOTFOUND, 0, -EIO },
		{ CURLE_WRITE_ERROR, ENOENT, -EIO },
		{ CURLE_READ_ERROR, 0, -EIO },
		{ (CURLcode)12345, 0, -EIO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (status_from_curl(rows[i].code, rows[i].os_errno) != rows[i].want)
			fail_msg("row %zu: %d", i,
				 status_from_curl(rows[i].code, rows[i].os_errno));
}

static void http_statuses(void **state)
{
	static const struct {
		int status, want;
	} rows[] = {
		{ 400, -EINVAL },
		{ 401, -EACCES },
		{ 403, -EACCES },
		{ 404, -EOPNOTSUPP },
		{ 405, -EOPNOTSUPP },
		{ 407, -EACCES },
		{ 408, -ETIMEDOUT },
		{ 409, -ESTALE },
		{ 412, -ESTALE },
		{ 413, -EFBIG },
		{ 414, -ENAMETOOLONG },
		{ 416, -EINVAL },
		{ 422, -EINVAL },
		{ 429, -EBUSY },
		{ 501, -EOPNOTSUPP },
		{ 502, -EAGAIN },
		{ 503, -EAGAIN },
		{ 504, -ETIMEDOUT },
		{ 507, -ENOSPC },
		/* whole families */
		{ 500, -EIO },
		{ 505, -EIO },
		{ 599, -EIO },
		{ 301, -EPROTO },
		{ 302, -EPROTO },
		{ 307, -EPROTO },
		{ 402, -EPROTO },
		{ 418, -EPROTO },
		{ 499, -EPROTO },
		{ 200, -EIO },
		{ 101, -EPROTO },
		{ 0, -EPROTO },
		{ -1, -EPROTO },
		{ 999, -EPROTO },
		{ 300, -EPROTO },
		{ 600, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(status_from_http(rows[i].status), rows[i].want);
	for (int status = -10; status < 1000; status++) {
		assert_true(status_from_http(status) < 0);
		assert_int_not_equal(status_from_http(status), -ENOENT);
	}
}

struct said {
	const char *words;
	int want;
};

static void assert_said(int (*status)(const char *), const struct said *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (status(rows[i].words) != rows[i].want)
			fail_msg("'%s': %d", rows[i].words, status(rows[i].words));
}

static void error_types(void **state)
{
	static const struct said rows[] = {
		{ "permission_denied", -EACCES },
		{ "not_found", -ENOENT },
		{ "already_exists", -EEXIST },
		{ "invalid_target", -EINVAL },
		{ "invalid_path", -EINVAL },
		{ "read_only_filesystem", -EROFS },
		{ "no_space_left", -ENOSPC },
		{ "decode_error", -EILSEQ },
		{ "io_error", -EIO },
		{ "PATH_NOT_FOUND", -ENOENT },
		{ "WATCHER_NOT_FOUND", -ESRCH },
		{ "WATCH_LIMIT_EXCEEDED", -EBUSY },
		{ "WATCH_TIMEOUT", -ETIMEDOUT },
		{ NULL, 0 },
		{ "", 0 },
		{ "not_found_at_all", 0 },
		{ "not_foun", 0 },
		{ "NOT_FOUND", 0 },
	};

	assert_said(status_from_error_type, rows, ARRAY_SIZE(rows));
}

static void errno_names(void **state)
{
	static const struct said rows[] = {
		{ "EPERM", -EPERM },
		{ "ENOENT", -ENOENT },
		{ "EIO", -EIO },
		{ "EAGAIN", -EAGAIN },
		{ "EACCES", -EACCES },
		{ "ENOTEMPTY", -ENOTEMPTY },
		{ "EXDEV", -EXDEV },
		{ "EDQUOT", -EDQUOT },
		{ "EHWPOISON", -EHWPOISON },
		{ "EOPNOTSUPP", -EOPNOTSUPP },
		/* second names */
		{ "EWOULDBLOCK", -EAGAIN },
		{ "EDEADLOCK", -EDEADLK },
		{ "ENOTSUP", -EOPNOTSUPP },
		/* not passed on */
		{ "ENOSYS", -EOPNOTSUPP },
		{ "ECANCELED", -EIO },
		{ NULL, 0 },
		{ "", 0 },
		{ "E", 0 },
		{ "ENOEN", 0 },
		{ "ENOENTX", 0 },
		{ "enoent", 0 },
		{ "2", 0 },
		{ "ERESTARTSYS", 0 },
	};

	assert_said(status_from_errno_name, rows, ARRAY_SIZE(rows));
}

static void errno_numbers(void **state)
{
	static const double
		bad[] = {
			0,     -0.0, -1,       -2,        0.5,          2.5,   41,
			58,    134,  512,      1000,      1e9,          1e300, -1e300,
			133.5, NAN,  INFINITY, -INFINITY, 4294967298.0, /* 2 in 32 bits */
		};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(status_from_errno(bad[i]), 0);
	for (int n = 1; n <= 133; n++) {
		int want = n == 41 || n == 58 ? 0
			   : n == ENOSYS      ? -EOPNOTSUPP
			   : n == ECANCELED   ? -EIO
					      : -n;

		assert_int_equal(status_from_errno(n), want);
	}
}

static void messages(void **state)
{
	static const struct said rows[] = {
		/* Python's numbers */
		{ "[Errno 13] Permission denied: '/x'", -EACCES },
		{ "Failed to read file: [Errno 13] Permission denied: '/x'", -EACCES },
		{ "Failed to read file: Failed to read file: [Errno 21] Is a directory: '/'",
		  -EISDIR },
		{ "Permission denied: [Errno 1] Operation not permitted: '/x'", -EPERM },
		{ "Invalid exec_dir: [Errno 20] Not a directory: '/x'", -ENOTDIR },
		{ "[Errno 122] Disk quota exceeded", -EDQUOT },
		{ "[Errno 90]", -EMSGSIZE },
		{ "[Errno 133]", -EHWPOISON },
		{ "[Errno 38] Function not implemented", -EOPNOTSUPP },
		/* numbers that are none, then one that is */
		{ "[Errno ] [Errno 0] [Errno -2] [Errno 41] [Errno 9999999999999] [Errno 5 ] "
		  "[Errno 17]",
		  -EEXIST },
		{ "[Errno 2", 0 },
		{ "[Errno", 0 },
		{ "[errno 2]", 0 },
		/* names are of no account */
		{ "[Errno 13] Permission denied: '/[Errno 2]'", -EACCES },
		{ "File does not exist: /x/[Errno 13]", -ENOENT },
		{ "Path is not a file: /x/[Errno 2]", -EISDIR },
		{ "Path is not a file: /x: No such file or directory", -EISDIR },
		{ "Failed to open file for download: [Errno 5] x: 'File does not exist'", -EIO },
		/* sentences */
		{ "File does not exist: /x", -ENOENT },
		{ "Failed to download: File does not exist: /x", -ENOENT },
		{ "file does not exist", -ENOENT },
		{ "File not found: /x", -ENOENT },
		{ "Path does not exist: /x", -ENOENT },
		{ "Path not found", -ENOENT },
		{ "Directory does not exist: /x", -ENOENT },
		{ "Directory not found: /x", -ENOENT },
		{ "Path is not a file: /x", -EISDIR },
		{ "Path is not a directory: /x", -ENOTDIR },
		{ "File changed before download started", -ESTALE },
		{ "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
		  -EILSEQ },
		{ "Failed to read file: 'utf-8' codec can't decode byte 0xff", -EILSEQ },
		{ "'utf-8' codec can't encode characters: surrogates not allowed", -EILSEQ },
		{ "Session not found", -ESRCH },
		{ "Session not found: abc", -ESRCH },
		{ "Session unavailable", -ESRCH },
		{ "Session 'abc' not found", -ESRCH },
		{ "Session abc does not exist", -ESRCH },
		{ "Watcher not found: abc", -ESRCH },
		{ "Watcher abc not found", -ESRCH },
		{ "Cannot create shell session: session limit reached and all 10 existing sessions "
		  "have active commands",
		  -EBUSY },
		{ "Cannot create bash session: session limit reached", -EBUSY },
		{ "No running command in session 'x'", -EPIPE },
		{ "The command has closed its standard input", -EPIPE },
		{ "Response too large", -EMSGSIZE },
		/* strerror's words alone */
		{ "Permission denied: '/x'", -EACCES },
		{ "Too many open files: '/x'", -EMFILE },
		{ "No space left on device", -ENOSPC },
		{ "Out of memory", -ENOMEM },
		{ "Cannot watch /a: b: Not a directory", -ENOTDIR },
		{ "Failed to write input: Broken pipe", -EPIPE },
		{ "Cannot create bash session: Cannot allocate memory", -ENOMEM },
		/* nothing to be learnt; above all no ENOENT */
		{ NULL, 0 },
		{ "", 0 },
		{ "Not Found", 0 },
		{ "not found", 0 },
		{ "Method Not Allowed", 0 },
		{ "Internal Server Error", 0 },
		{ "Operation successful", 0 },
		{ "Failed to ", 0 },
		{ "Failed to read file", 0 },
		{ "Failed to read file: ", 0 },
		{ "The route does not exist", 0 },
		{ "Cannot create a thing", 0 },
		{ "No such file or directory, they say", 0 },
	};

	assert_said(status_from_message, rows, ARRAY_SIZE(rows));
}

static int from_text(const char *err)
{
	return status_from_command(err, strlen(err), 1);
}

static void command_strerror_texts(void **state)
{
	static const struct said rows[] = {
		{ "Operation not permitted", -EPERM },
		{ "No such file or directory", -ENOENT },
		{ "Interrupted system call", -EINTR },
		{ "Input/output error", -EIO },
		{ "No such device or address", -ENXIO },
		{ "Argument list too long", -E2BIG },
		{ "Bad file descriptor", -EBADF },
		{ "Resource temporarily unavailable", -EAGAIN },
		{ "Cannot allocate memory", -ENOMEM },
		{ "Permission denied", -EACCES },
		{ "Device or resource busy", -EBUSY },
		{ "File exists", -EEXIST },
		{ "Invalid cross-device link", -EXDEV },
		{ "No such device", -ENODEV },
		{ "Not a directory", -ENOTDIR },
		{ "Is a directory", -EISDIR },
		{ "Invalid argument", -EINVAL },
		{ "Too many open files in system", -ENFILE },
		{ "Too many open files", -EMFILE },
		{ "Text file busy", -ETXTBSY },
		{ "File too large", -EFBIG },
		{ "No space left on device", -ENOSPC },
		{ "Illegal seek", -ESPIPE },
		{ "Read-only file system", -EROFS },
		{ "Too many links", -EMLINK },
		{ "Broken pipe", -EPIPE },
		{ "File name too long", -ENAMETOOLONG },
		{ "Function not implemented", -EOPNOTSUPP },
		{ "Directory not empty", -ENOTEMPTY },
		{ "Too many levels of symbolic links", -ELOOP },
		{ "No data available", -ENODATA },
		{ "Value too large for defined data type", -EOVERFLOW },
		{ "Invalid or incomplete multibyte or wide character", -EILSEQ },
		{ "Operation not supported", -EOPNOTSUPP },
		{ "Transport endpoint is not connected", -ENOTCONN },
		{ "Connection timed out", -ETIMEDOUT },
		{ "Stale file handle", -ESTALE },
		{ "Structure needs cleaning", -EUCLEAN },
		{ "Remote I/O error", -EREMOTEIO },
		{ "Disk quota exceeded", -EDQUOT },
		{ "Operation canceled", -EIO },
		{ "Memory page has hardware error", -EHWPOISON },
		/* as musl has them */
		{ "Out of memory", -ENOMEM },
		{ "Resource busy", -EBUSY },
		{ "Cross-device link", -EXDEV },
		{ "I/O error", -EIO },
		{ "Filename too long", -ENAMETOOLONG },
		{ "Symbolic link loop", -ELOOP },
		{ "No file descriptors available", -EMFILE },
		{ "Not supported", -EOPNOTSUPP },
		{ "Quota exceeded", -EDQUOT },
		{ "Operation timed out", -ETIMEDOUT },
		{ "Socket not connected", -ENOTCONN },
		{ "Value too large for data type", -EOVERFLOW },
		{ "Illegal byte sequence", -EILSEQ },
	};
	static const char *const frames[] = {
		"mv: cannot move 'a' to 'b': %s\n",
		"mv: cannot move 'a: File exists' to 'b: Broken pipe': %s",
		"bash: line 1: cd: x: %s\r\n",
		"bash: line 1: x: Is a directory\n/y: %s\n", /* a name of bash's, unquoted */
		"rm: 'cannot overwrite directory ': %s\n",
		"rm: 'x': %s\n0+0 records in\nTry 'rm --help' for more information.\n\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (size_t f = 0; f < ARRAY_SIZE(frames); f++) {
			const char *mark = strstr(frames[f], "%s");
			char err[300];

			snprintf(err, sizeof(err), "%.*s%s%s", (int)(mark - frames[f]), frames[f],
				 rows[i].words, mark + 2);
			if (from_text(err) != rows[i].want)
				fail_msg("'%s': %d", err, from_text(err));
		}
	}
}

static void command_phrases(void **state)
{
	static const struct said rows[] = {
		{ "mv: cannot overwrite directory 'd' with non-directory", -EISDIR },
		{ "mv: cannot overwrite directory 'd' with non-directory 'a'", -EISDIR },
		{ "mv: cannot overwrite non-directory 'a' with directory 'd'", -ENOTDIR },
		{ "mv: cannot move 'd' to a subdirectory of itself, 'd/x/y'", -EINVAL },
		{ "cp: cannot copy a directory, 'd', into itself, 'd/x'", -EINVAL },
		{ "cp: -r not specified; omitting directory 'd'", -EISDIR },
		{ "chmod: cannot operate on dangling symlink 'l'", -ENOENT },
		{ "mv: 'a' and './a' are the same file", -EEXIST },
		{ "mv: not replacing 'b'", -EEXIST },
		{ "bash: line 1: b: cannot overwrite existing file", -EEXIST },
		{ "ln: d: hard link not allowed for directory", -EPERM },
		{ "sort: memory exhausted", -ENOMEM },
		{ "mv: unrecognized option '--exchange'\nTry 'mv --help' for more information.",
		  -EOPNOTSUPP },
		{ "mv: unrecognized option: T\nBusyBox v1.36.1", -EOPNOTSUPP },
		{ "find: unrecognized: -printf", -EOPNOTSUPP },
		{ "find: unknown predicate `-printf'", -EOPNOTSUPP },
		{ "df: invalid option -- 'Q'", -EOPNOTSUPP },
		{ "bash: line 1: cd: -Q: invalid option", -EOPNOTSUPP },
		{ "bash: line 1: stat: command not found", -EOPNOTSUPP },
		{ "sh: 1: stat: not found", -EOPNOTSUPP },
		{ "mkdir: invalid mode 'zz'", -EINVAL },
		{ "touch: invalid date format 'foo'", -EINVAL },
		/* one phrase in the names of another */
		{ "mv: cannot overwrite directory 'to a subdirectory of itself, ' with "
		  "non-directory",
		  -EISDIR },
		{ "mv: cannot move ' are the same file' to a subdirectory of itself, 'not "
		  "replacing '",
		  -EINVAL },
		{ "mv: not replacing 'x: No such file or directory'", -EEXIST },
		{ "mv: 'x: No such file or directory' and 'y' are the same file", -EEXIST },
		/* nothing to be learnt */
		{ "", -EIO },
		{ "\n\n\n", -EIO },
		{ ": ", -EIO },
		{ ":", -EIO },
		{ "Killed", -EIO },
		{ "No such file or directory", -EIO },
		{ "mv: something new about 'x: No such file or directory'", -EIO },
		{ "mv: No such file or directory, maybe", -EIO },
		{ "Segmentation fault (core dumped)", -EIO },
	};

	assert_said(from_text, rows, ARRAY_SIZE(rows));
}

static void command_exit_codes(void **state)
{
	static const char gone[] = "env: 'stat': No such file or directory";
	static const char nul[] = "x: y\0z: File exists";

	assert_int_equal(status_from_command(gone, strlen(gone), 127), -EOPNOTSUPP);
	assert_int_equal(status_from_command(gone, strlen(gone), 126), -EOPNOTSUPP);
	assert_int_equal(status_from_command(gone, strlen(gone), 1), -ENOENT);
	assert_int_equal(status_from_command(NULL, 0, 127), -EOPNOTSUPP);
	assert_int_equal(status_from_command(NULL, 0, 1), -EIO);
	assert_int_equal(status_from_command(NULL, 0, -9), -EIO);
	assert_int_equal(status_from_command(NULL, 0, 0), -EIO);
	assert_int_equal(status_from_command(nul, sizeof(nul) - 1, 1), -EEXIST);
	/* no byte past the length is looked at */
	assert_int_equal(status_from_command(nul, 4, 1), -EIO);
}

static void command_output_without_end(void **state)
{
	size_t len = (size_t)16 * MIB;
	char *err CLEANUP_FREE = malloc(len);

	assert_non_null(err);
	memset(err, '\n', len);
	assert_int_equal(status_from_command(err, len, 1), -EIO);
	for (size_t i = 0; i + 1 < len; i += 2)
		memcpy(err + i, ": ", 2);
	assert_int_equal(status_from_command(err, len, 1), -EIO);
	memcpy(err + len - 20, "\nmv: 'x': File exists", 20); /* without its last letter */
	assert_int_equal(status_from_command(err, len, 1), -EIO);
	memcpy(err + len - 21, "\nmv: 'x': File exists", 21);
	assert_int_equal(status_from_command(err, len, 1), -EEXIST);
}

/* What is below the directory is no reason for it to fail, what find itself says is. */
static void find_words(void **state)
{
	static const struct {
		const char *text;
		int want;
		bool incomplete;
	} rows[] = {
		{ "", 0, false },
		{ "find: './a': No such file or directory\n", 0, false },
		{ "find: './a': Permission denied\n", 0, true },
		{ "find: './a': Permission denied", 0, true },
		{ "nd: './a': Permission denied\nfind: './b': No such file or directory\n", 0,
		  true },
		{ "find: '.': Permission denied\n", -EACCES, false },
		{ "find: write error: No space left on device\n", -ENOSPC, false },
		{ "find: './a': Permission denied\nfind: '.': Input/output error\n", -EIO, false },
		{ "find: './find: x': No such file or directory\n", 0, false },
		{ "find: whatever", -EIO, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool incomplete = false;

		assert_int_equal(
			status_from_find(rows[i].text, strlen(rows[i].text), 1, &incomplete),
			rows[i].want);
		assert_int_equal(incomplete, rows[i].incomplete);
	}
}

static char scratch[] = "/tmp/test_status.XXXXXX";

static int make_scratch(void **state)
{
	return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
	struct buf script CLEANUP_BUF = BUF_INIT(0), out CLEANUP_BUF = BUF_INIT(0);

	shell_printf(&script, "rm -r -- %s", scratch);
	return run_bash("", &script, "", &out);
}

/* The machine's own tools, with names that lie. */
static void command_errors_of_real_tools(void **state)
{
	static const struct said rows[] = {
		{ "mv a nope/b", -ENOENT },
		{ "stat -- nope", -ENOENT },
		{ "rmdir d", -ENOTEMPTY },
		{ "rmdir a", -ENOTDIR },
		{ "unlink d", -EISDIR },
		{ "mkdir a", -EEXIST },
		{ "mkdir a/b", -ENOTDIR },
		{ "ln a b", -EEXIST },
		{ "ln -T d e", -EPERM },
		{ "ln -sT x a", -EEXIST },
		{ "mv -T d a", -ENOTDIR },
		{ "mv -T a d", -EISDIR },
		{ "mv -T empty d", -ENOTEMPTY },
		{ "mv d d/x/y", -EINVAL },
		{ "mv a a", -EEXIST },
		{ "cp a d/", 0 },
		{ "cat loop", -ELOOP },
		{ "truncate -s 0 d", -EISDIR },
		{ "truncate -s 9223372036854775807 a", -EFBIG },
		{ "mkdir \"$(printf '%300s' x)\"", -ENAMETOOLONG },
		{ "echo x > d", -EISDIR },
		{ "set -C; echo x > a", -EEXIST },
		{ "dd if=d of=/dev/null", -EISDIR },
		{ "echo x > /dev/full", -ENOSPC },
		{ "mv --nonsense a b", -EOPNOTSUPP },
		{ "find . -nonsense", -EOPNOTSUPP },
		{ "stat -Q a", -EOPNOTSUPP },
		{ "nonsense-tool", -EOPNOTSUPP },
		{ "exec nonsense-tool", -EOPNOTSUPP },
		/* names that claim another error */
		{ "mkdir 'x: No such file or directory'", -EEXIST },
		{ "rmdir 'x: No such file or directory'", -ENOTDIR },
		{ "mv -T 'x: No such file or directory' d", -EISDIR },
		{ "mv -T d 'x: No such file or directory'", -ENOTDIR },
		{ "mv 'x: No such file or directory' 'x: No such file or directory'", -EEXIST },
		{ "rmdir $'y\nx: No such file or directory'", -ENOTDIR },
		{ "mkdir $'y\nx: No such file or directory'", -EEXIST },
		{ "cd $'y\nx: No such file or directory'", -ENOTDIR },
		{ "cd $'x: File exists\ny'", -ENOENT },
		{ "cd $'cannot overwrite directory \n: not found'", -ENOENT },
	};
	struct buf script CLEANUP_BUF = BUF_INIT(0), err CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int code, got;

		buf_reset(&script);
		buf_reset(&err);
		shell_printf(&script, "rm -rf -- %s && mkdir %s && cd %s || exit 99\n", scratch,
			     scratch, scratch);
		buf_puts(&script, "mkdir -p d/x empty; touch a b 'x: No such file or directory' "
				  "$'y\\nx: No such file or directory'; ln -s loop loop\n");
		assert_int_equal(buf_printf(&script, "%s\n", rows[i].words), 0);
		code = run_bash("LC_ALL=C", &script, "2>&1 >/dev/null </dev/null", &err);
		got = code ? status_from_command(err.data, err.len, code) : 0;
		if (got != rows[i].want)
			fail_msg("%s: exit %d, '%s': %d", rows[i].words, code,
				 err.len ? err.data : "", got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(curl_codes),
		cmocka_unit_test(http_statuses),
		cmocka_unit_test(error_types),
		cmocka_unit_test(errno_names),
		cmocka_unit_test(errno_numbers),
		cmocka_unit_test(messages),
		cmocka_unit_test(command_strerror_texts),
		cmocka_unit_test(command_phrases),
		cmocka_unit_test(command_exit_codes),
		cmocka_unit_test(command_output_without_end),
		cmocka_unit_test(find_words),
		cmocka_unit_test_setup_teardown(command_errors_of_real_tools, make_scratch,
						remove_scratch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
