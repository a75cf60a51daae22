/*
 * See status.h. The names, numbers and texts of errnos are those of glibc;
 * everything else is in the tables here. Any thread.
 */
#include "status.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum {
	ERRNO_MAX = 133,
	STDERR_LOOK_BYTES = 64 * 1024, /* two paths at their longest, escaped, fit in there */
};

/* An errno of Linux as it may be passed on; 0 if n is none. */
static int pass_on(int n)
{
	if (n < 1 || n > ERRNO_MAX || !strerrorname_np(n))
		return 0;
	switch (n) {
	case ENOSYS: /* to the kernel's FUSE it means: never ask for this again */
		return -EOPNOTSUPP;
	case ECANCELED: /* is for our own cancellations */
		return -EIO;
	default:
		return -n;
	}
}

/* ---- transport ---- */

static const struct {
	CURLcode code;
	int err;
} curl_rows[] = {
	{ CURLE_COULDNT_CONNECT, ECONNREFUSED },
	{ CURLE_PROXY, ECONNREFUSED },
	{ CURLE_COULDNT_RESOLVE_HOST, EHOSTUNREACH },
	{ CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH },
	{ CURLE_OPERATION_TIMEDOUT, ETIMEDOUT },
	{ CURLE_GOT_NOTHING, ECONNRESET },
	{ CURLE_RECV_ERROR, ECONNRESET },
	{ CURLE_SEND_ERROR, ECONNRESET },
	{ CURLE_SEND_FAIL_REWIND, ECONNRESET }, /* half of it was sent: who knows what was done */
	{ CURLE_NO_CONNECTION_AVAILABLE, EAGAIN },
	{ CURLE_PARTIAL_FILE, EIO },
	{ CURLE_PEER_FAILED_VERIFICATION, EKEYREJECTED },
	{ CURLE_SSL_CERTPROBLEM, EKEYREJECTED },
	{ CURLE_SSL_CLIENTCERT, EKEYREJECTED },
	{ CURLE_SSL_CACERT_BADFILE, EKEYREJECTED },
	{ CURLE_SSL_CRL_BADFILE, EKEYREJECTED },
	{ CURLE_SSL_ISSUER_ERROR, EKEYREJECTED },
	{ CURLE_SSL_PINNEDPUBKEYNOTMATCH, EKEYREJECTED },
	{ CURLE_SSL_INVALIDCERTSTATUS, EKEYREJECTED },
	{ CURLE_SSL_CONNECT_ERROR, EPROTO },
	{ CURLE_SSL_CIPHER, EPROTO },
	{ CURLE_SSL_ENGINE_NOTFOUND, EPROTO },
	{ CURLE_SSL_ENGINE_SETFAILED, EPROTO },
	{ CURLE_SSL_ENGINE_INITFAILED, EPROTO },
	{ CURLE_SSL_SHUTDOWN_FAILED, EPROTO },
	{ CURLE_USE_SSL_FAILED, EPROTO },
	{ CURLE_TOO_MANY_REDIRECTS, EPROTO },
	{ CURLE_UNSUPPORTED_PROTOCOL, EBADMSG }, /* also an answer without a status line */
	{ CURLE_WEIRD_SERVER_REPLY, EBADMSG },
	{ CURLE_BAD_CONTENT_ENCODING, EBADMSG },
	{ CURLE_RANGE_ERROR, EBADMSG },
	{ CURLE_HTTP2, EBADMSG },
	{ CURLE_HTTP2_STREAM, EBADMSG },
	{ CURLE_FILESIZE_EXCEEDED, EMSGSIZE },
#if LIBCURL_VERSION_NUM >= 0x080600
	{ CURLE_TOO_LARGE, EMSGSIZE },
#endif
	{ CURLE_LOGIN_DENIED, EACCES },
	{ CURLE_AUTH_ERROR, EACCES },
	{ CURLE_REMOTE_ACCESS_DENIED, EACCES },
	{ CURLE_URL_MALFORMAT, EINVAL },
	{ CURLE_OUT_OF_MEMORY, ENOMEM },
	{ CURLE_ABORTED_BY_CALLBACK, ECANCELED },
};

/*
 * What connect(2) may report as it is. ENOENT and EACCES of a unix socket are
 * not here: to a user they would speak of the file that he asked for. Nor is ECONNRESET, of a
 * server that died before it took the connection: nothing was sent.
 */
static bool is_of_network(long n)
{
	static const int errnos[] = {
		ECONNREFUSED, ENETDOWN,  ENETUNREACH,   EHOSTDOWN,
		EHOSTUNREACH, ETIMEDOUT, EADDRNOTAVAIL,
	};

	for (size_t i = 0; i < ARRAY_SIZE(errnos); i++)
		if (errnos[i] == n)
			return true;
	return false;
}

int status_from_curl(CURLcode code, long os_errno)
{
	if (code == CURLE_COULDNT_CONNECT && is_of_network(os_errno))
		return -(int)os_errno;
	for (size_t i = 0; i < ARRAY_SIZE(curl_rows); i++)
		if (curl_rows[i].code == code)
			return -curl_rows[i].err;
	return -EIO;
}

static const struct {
	int status, err;
} http_rows[] = {
	{ 400, EINVAL },     { 401, EACCES },    { 403, EACCES },       { 404, EOPNOTSUPP },
	{ 405, EOPNOTSUPP }, { 407, EACCES },    { 408, ETIMEDOUT },    { 409, ESTALE },
	{ 412, ESTALE },     { 413, EFBIG },     { 414, ENAMETOOLONG }, { 416, EINVAL },
	{ 422, EINVAL },     { 429, EBUSY },     { 501, EOPNOTSUPP },   { 502, EAGAIN },
	{ 503, EAGAIN },     { 504, ETIMEDOUT }, { 507, ENOSPC },
};

int status_from_http(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(http_rows); i++)
		if (http_rows[i].status == status)
			return -http_rows[i].err;
	/* A 2xx is here when its body says that it failed, but not why. */
	if ((status >= 200 && status < 300) || (status >= 500 && status < 600))
		return -EIO;
	return -EPROTO; /* redirects too: they are not followed */
}

/* ---- what a server says ---- */

struct word {
	const char *word;
	int err;
};

static const struct word error_types[] = {
	{ "permission_denied", EACCES },
	{ "not_found", ENOENT },
	{ "already_exists", EEXIST },
	{ "invalid_target", EINVAL }, /* a directory or not one: the errno beside it tells */
	{ "invalid_path", EINVAL },
	{ "read_only_filesystem", EROFS },
	{ "no_space_left", ENOSPC },
	{ "decode_error", EILSEQ },
	{ "io_error", EIO },
	/* codes of the watch routes */
	{ "PATH_NOT_FOUND", ENOENT },
	{ "WATCHER_NOT_FOUND", ESRCH },
	{ "WATCH_LIMIT_EXCEEDED", EBUSY },
	{ "WATCH_TIMEOUT", ETIMEDOUT },
};

/* Second names of errnos; Python prefers some of them. */
static const struct word errno_aliases[] = {
	{ "EWOULDBLOCK", EWOULDBLOCK },
	{ "EDEADLOCK", EDEADLOCK },
	{ "ENOTSUP", ENOTSUP },
};

/* What musl calls an errno of files, where it is not glibc's text. */
static const struct word musl_texts[] = {
	{ "Out of memory", ENOMEM },
	{ "Resource busy", EBUSY },
	{ "Cross-device link", EXDEV },
	{ "I/O error", EIO },
	{ "Filename too long", ENAMETOOLONG },
	{ "Symbolic link loop", ELOOP },
	{ "No file descriptors available", EMFILE },
	{ "Not supported", EOPNOTSUPP },
	{ "Quota exceeded", EDQUOT },
	{ "Operation timed out", ETIMEDOUT },
	{ "Socket not connected", ENOTCONN },
	{ "Value too large for data type", EOVERFLOW },
	{ "Illegal byte sequence", EILSEQ },
};

static bool is_text(const char *text, const char *s, size_t len)
{
	return text && strlen(text) == len && memcmp(text, s, len) == 0;
}

static int find_word(const struct word *rows, size_t n, const char *s, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (is_text(rows[i].word, s, len))
			return -rows[i].err;
	return 0;
}

/* The errno that strerror(3) of the C locale describes with exactly these words; or 0. */
static int from_strerror(const char *s, size_t len)
{
	for (int n = 1; n <= ERRNO_MAX; n++)
		if (is_text(strerrordesc_np(n), s, len))
			return pass_on(n);
	return find_word(musl_texts, ARRAY_SIZE(musl_texts), s, len);
}

/* The same for what follows the last ": ", where perror(3) and its kind put it. */
static int from_strerror_at_end(const char *s, size_t len)
{
	for (size_t i = len; i >= 2; i--)
		if (s[i - 2] == ':' && s[i - 1] == ' ')
			return from_strerror(s + i, len - i);
	return 0;
}

/* A sentence by its beginning and end (in any case) and its middle; "" for whatever. */
struct phrase {
	const char *start, *middle, *end;
	int err;
};

static const char *find_middle(const char *s, size_t len, const char *middle)
{
	return *middle ? memmem(s, len, middle, strlen(middle)) : s;
}

static int find_phrase(const struct phrase *rows, size_t n, const char *s, size_t len)
{
	for (size_t i = 0; i < n; i++) {
		size_t start = strlen(rows[i].start), end = strlen(rows[i].end);

		if (len >= start + end && strncasecmp(s, rows[i].start, start) == 0 &&
		    strncasecmp(s + len - end, rows[i].end, end) == 0 &&
		    find_middle(s + start, len - start - end, rows[i].middle))
			return -rows[i].err;
	}
	return 0;
}

/* Anchored at the start, for file names come later in these sentences. */
static const struct phrase server_phrases[] = {
	{ "File does not exist", "", "", ENOENT },
	{ "File not found", "", "", ENOENT },
	{ "Path does not exist", "", "", ENOENT },
	{ "Path not found", "", "", ENOENT },
	{ "Directory does not exist", "", "", ENOENT },
	{ "Directory not found", "", "", ENOENT },
	{ "Path is not a file", "", "", EISDIR },
	{ "Path is not a directory", "", "", ENOTDIR },
	{ "File changed", "", "", ESTALE },
	{ "'utf-8' codec can't", "", "", EILSEQ },
	{ "Session not found", "", "", ESRCH },
	{ "Session unavailable", "", "", ESRCH },
	{ "Session ", "", " not found", ESRCH },
	{ "Session ", "", " does not exist", ESRCH },
	{ "Watcher not found", "", "", ESRCH },
	{ "Watcher ", "", " not found", ESRCH },
	{ "Cannot create ", " session: session limit reached", "", EBUSY },
	{ "No running command", "", "", EPIPE },
	{ "The command has closed its standard input", "", "", EPIPE },
	{ "Response too large", "", "", EMSGSIZE },
};

int status_from_error_type(const char *error_type)
{
	return error_type ? find_word(error_types, ARRAY_SIZE(error_types), error_type,
				      strlen(error_type))
			  : 0;
}

int status_from_errno_name(const char *name)
{
	size_t len = name ? strlen(name) : 0;

	for (int n = 1; n <= ERRNO_MAX && len > 0; n++)
		if (is_text(strerrorname_np(n), name, len))
			return pass_on(n);
	return len > 0 ? find_word(errno_aliases, ARRAY_SIZE(errno_aliases), name, len) : 0;
}

int status_from_errno(double number)
{
	/* The range first: the cast of anything else is undefined. */
	if (!(number >= 1 && number <= ERRNO_MAX) || number != (int)number)
		return 0;
	return pass_on((int)number);
}

/* The first "[Errno N]", as Python writes it; names come after it. */
static int from_python(const char *s)
{
	static const char mark[] = "[Errno ";

	while ((s = strstr(s, mark))) {
		int n = 0, err;

		s += sizeof(mark) - 1;
		for (; *s >= '0' && *s <= '9' && n <= ERRNO_MAX; s++)
			n = n * 10 + (*s - '0');
		err = *s == ']' ? pass_on(n) : 0;
		if (err)
			return err;
	}
	return 0;
}

int status_from_message(const char *message)
{
	static const char prefix[] = "Failed to ";
	const char *s = message, *colon;
	size_t len;
	int err;

	/* "Failed to read file: ", which some servers write twice */
	while (s && strncmp(s, prefix, sizeof(prefix) - 1) == 0 && (colon = strstr(s, ": ")))
		s = colon + 2;
	if (!s)
		return 0;
	len = strlen(s);
	err = find_phrase(server_phrases, ARRAY_SIZE(server_phrases), s, len);
	if (!err)
		err = from_python(s);
	if (!err) {
		colon = strstr(s, ": ");
		err = from_strerror(s, colon ? (size_t)(colon - s) : len);
	}
	return err ? err : from_strerror_at_end(s, len);
}

/* ---- what a command says ---- */

/*
 * After "tool: ", where no strerror text ends the line. GNU tools quote names,
 * so none of these beginnings and ends can be part of a name.
 */
static const struct phrase command_phrases[] = {
	{ "cannot overwrite directory ", "", "", EISDIR },
	{ "cannot overwrite non-directory ", "", "", ENOTDIR },
	{ "cannot move ", " to a subdirectory of itself, ", "", EINVAL },
	{ "cannot copy a directory, ", " into itself, ", "", EINVAL },
	{ "-r not specified; omitting directory ", "", "", EISDIR },
	{ "cannot operate on dangling symlink ", "", "", ENOENT },
	/* rename(2) of one file's two names is 0 and does nothing; for mv both names stay too */
	{ "", "", " are the same file", EEXIST },
	{ "not replacing ", "", "", EEXIST },
	{ "", "", ": cannot overwrite existing file", EEXIST },
	{ "", "", "hard link not allowed for directory", EPERM },
	{ "", "", "memory exhausted", ENOMEM },
	{ "unrecognized option", "", "", EOPNOTSUPP },
	{ "unrecognized: ", "", "", EOPNOTSUPP },
	{ "unknown predicate ", "", "", EOPNOTSUPP },
	{ "invalid option", "", "", EOPNOTSUPP },
	{ "", "", ": invalid option", EOPNOTSUPP },
	{ "", "", ": command not found", EOPNOTSUPP },
	{ "", "", ": not found", EOPNOTSUPP },
	{ "invalid ", "", "", EINVAL },
};

static int from_command_line(const char *line, size_t len)
{
	const char *rest;
	int err;

	while (len > 0 && strchr(" \t\r", line[len - 1]))
		len--;
	err = from_strerror_at_end(line, len);
	rest = memmem(line, len, ": ", 2);
	if (err || !rest)
		return err;
	rest += 2;
	return find_phrase(command_phrases, ARRAY_SIZE(command_phrases), rest,
			   len - (size_t)(rest - line));
}

int status_from_command(const char *err, size_t len, int exit_code)
{
	/* The shell's word for a tool that is missing or cannot be run. */
	if (exit_code == 126 || exit_code == 127)
		return -EOPNOTSUPP;
	if (len > STDERR_LOOK_BYTES) {
		err += len - STDERR_LOOK_BYTES;
		len = STDERR_LOOK_BYTES;
	}
	/*
	 * The last line counts: bash itself does not quote names, and one with
	 * a line end in it may put any words before the true ones.
	 */
	while (len > 0) {
		const char *before = memrchr(err, '\n', len);
		size_t start = before ? (size_t)(before - err) + 1 : 0;
		int found = from_command_line(err + start, len - start);

		if (found)
			return found;
		len = start > 0 ? start - 1 : 0;
	}
	return -EIO;
}

static bool begins(const char *s, size_t len, const char *with)
{
	return len >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/*
 * Names below are quoted and begin with a dot and a slash: no line about one can look like
 * find's own. The first line may have lost its beginning; that is one of many, so it is about
 * something below.
 */
int status_from_find(const char *err, size_t len, int exit_code, bool *ret_incomplete)
{
	bool incomplete = false;

	while (len > 0) {
		const char *newline = memchr(err, '\n', len);
		size_t n = newline ? (size_t)(newline - err) : len;
		int found = status_from_command(err, n, exit_code);

		if (begins(err, n, "find: ") && !begins(err, n, "find: './"))
			return found;
		if (found != -ENOENT)
			incomplete = true;
		n += newline != NULL;
		err += n;
		len -= n;
	}
	if (incomplete)
		*ret_incomplete = true;
	return 0;
}
