/* See secret.h. */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"

enum { SECRET_BYTES_MAX = 8192 };

int secret_refuse(const char *where, struct buf *why)
{
	buf_printf(why,
		   "%s can be read by others: use api_key_file=FILE, or the environment "
		   "variable " SECRET_API_KEY_VARIABLE " or " SECRET_TOKEN_VARIABLE,
		   where);
	return -EINVAL;
}

void secret_free(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

int secret_set(char **to, const char *name, const char *text, struct buf *why)
{
	size_t len = strlen(text);
	char *copy;

	if (len == 0) {
		buf_printf(why, "%s is empty", name);
		return -EINVAL;
	}
	if (len > SECRET_BYTES_MAX) {
		buf_printf(why, "%s is longer than %d bytes", name, SECRET_BYTES_MAX);
		return -EINVAL;
	}
	/* It becomes part of a header: a newline in it would begin another one. */
	for (size_t i = 0; i < len; i++) {
		if (text[i] < ' ' || text[i] > '~') {
			buf_printf(why, "%s holds a byte that is not printable ASCII", name);
			return -EINVAL;
		}
	}
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	secret_free(*to);
	*to = copy;
	return 0;
}

int secret_read(char **to, const char *path, struct buf *why)
{
	char text[SECRET_BYTES_MAX + 4];
	struct stat st;
	ssize_t len;
	int r;
	/* Not to wait for a writer of a pipe, nor to get a terminal. */
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
		buf_printf(why, "'%s' cannot be opened: %s", path, strerrordesc_np(-r));
		return r;
	}
	if (!S_ISREG(st.st_mode)) {
		buf_printf(why, "'%s' is not a regular file", path);
		return -EINVAL;
	}
	len = pread_all(fd, text, sizeof(text) - 1, 0);
	if (len < 0) {
		buf_printf(why, "'%s' cannot be read: %s", path, strerrordesc_np((int)-len));
		return (int)len;
	}
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	text[len] = '\0';
	if (strlen(text) != (size_t)len) {
		buf_printf(why, "the key in '%s' holds a byte that is not printable ASCII", path);
		r = -EINVAL;
	} else {
		struct buf name CLEANUP_BUF = BUF_INIT(0);

		r = buf_printf(&name, "the key in '%s'", path)
			    ?: secret_set(to, name.data, text, why);
	}
	explicit_bzero(text, sizeof(text));
	return r;
}
