/* Datagrams for the service manager. See systemd.h. */
#include "systemd.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "buf.h"

static struct sockaddr_un address;
static socklen_t address_len; /* 0: there is none */

void systemd_begin(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	/* "@name" is in the abstract namespace: a NUL stands for the '@', and none ends it. */
	if (len > 1 && len < sizeof(address.sun_path) && (path[0] == '/' || path[0] == '@')) {
		address.sun_family = AF_UNIX;
		memcpy(address.sun_path, path, len + 1);
		if (path[0] == '@')
			address.sun_path[0] = '\0';
		address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len +
					  (path[0] == '/'));
	}
	unsetenv("NOTIFY_SOCKET");
}

void systemd_tell(const char *fmt, ...)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	int fd CLEANUP_FD = -1;
	va_list ap;

	if (address_len == 0)
		return;
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !text.error)
		(void)!sendto(fd, text.data, text.len, MSG_NOSIGNAL,
			      (const struct sockaddr *)&address, address_len);
}
