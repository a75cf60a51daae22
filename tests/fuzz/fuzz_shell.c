/*
 * What commands say into a shell session: what is left of the bytes for its terminal, and the
 * reports of its loop, which a command can forge. Two bytes say where the rest is cut in
 * pieces: how it comes must not matter. The functions are the file's own.
 */
#include "../../sandboxd/shell_pty.c"

#include <assert.h>

#include "shell_text.h"
#include "utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SHORT = 200 };

/* ---- its terminal ---- */

static void feed(const char *bytes, size_t size, size_t step, struct shell_text *t, struct buf *out)
{
	while (size > 0) {
		size_t n = MIN(step, size);
		int r = shell_text_feed(t, bytes, n, out);

		assert(r == 0);
		bytes += n;
		size -= n;
	}
}

static void check_text(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert(s[i] != '\033' && s[i] != '\r' && s[i] != '\b');
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_sequence(s + i, len - i);
		assert(n > 0);
	}
}

static void read_terminal(const char *bytes, size_t size, size_t step)
{
	struct buf whole CLEANUP_BUF = BUF_INIT(0), pieces CLEANUP_BUF = BUF_INIT(0);
	struct buf shorter CLEANUP_BUF = BUF_INIT(0);
	struct shell_text a = { 0 }, b = { 0 };
	int r;

	feed(bytes, size, MAX(size, 1), &a, &whole);
	feed(bytes, size, step, &b, &pieces);
	assert(whole.len == pieces.len && a.state == b.state);
	assert(a.ncut == b.ncut && a.ncut < sizeof(a.cut));
	if (whole.len == 0)
		return;
	assert(memcmp(whole.data, pieces.data, whole.len) == 0);
	assert(whole.len <= 3 * size); /* a byte can become a replacement character */
	check_text(whole.data, whole.len);
	assert(shell_text_trim(whole.data, whole.len) <= whole.len);
	r = shell_text_shorten(whole.data, whole.len, SHORT, &shorter);
	assert(r == (utf8_length(whole.data, whole.len) > SHORT));
	if (r == 1)
		assert(utf8_length(shorter.data, shorter.len) <= SHORT);
	check_text(shorter.data, shorter.len);
}

/* ---- the reports of its loop ---- */

struct heard {
	struct shell_pty pty;
	struct buf said;
};

static void on_report(struct shell_pty *p, uint64_t seq, int status, const char *dir)
{
	struct heard *h = CONTAINER_OF(p, struct heard, pty);

	assert(dir >= p->report.data && dir + strlen(dir) < p->report.data + p->report.len);
	buf_printf(&h->said, "%ju %d %s", (uintmax_t)seq, status, dir);
	buf_putc(&h->said, '\0');
}

/* Of a report that is not complete. */
static void check_left(const struct buf *report)
{
	unsigned fields = 0;

	for (size_t i = 0; i < report->len; i++)
		fields += report->data[i] == '\0';
	assert(fields < 3);
}

static void hear(struct heard *h, const char *bytes, size_t size, size_t step)
{
	static const struct shell_pty_events events = { .report = on_report };

	*h = (struct heard){ .said = BUF_INIT(0) };
	shell_pty_init(&h->pty, NULL, &events);
	h->pty.report = BUF_INIT(MAX_REPORT);
	while (size > 0) {
		size_t n = MIN(step, size);

		/* on_control() ends bash then */
		if (buf_append(&h->pty.report, bytes, n) < 0)
			break;
		take_reports(&h->pty);
		check_left(&h->pty.report);
		bytes += n;
		size -= n;
	}
	assert(!h->said.error);
}

static void heard_release(struct heard *h)
{
	buf_release(&h->pty.report);
	buf_release(&h->said);
}

static void read_reports(const char *bytes, size_t size, size_t step)
{
	struct heard whole, pieces;

	hear(&whole, bytes, size, 1024); /* as much as is received at once */
	hear(&pieces, bytes, size, step);
	assert(whole.said.len == pieces.said.len);
	if (whole.said.len > 0)
		assert(memcmp(whole.said.data, pieces.said.data, whole.said.len) == 0);
	heard_release(&whole);
	heard_release(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *bytes CLEANUP_FREE = NULL;
	size_t step;

	if (size < 2)
		return 0;
	step = 1 + (size_t)(data[0] << 8 | data[1]) % 1024;
	data += 2;
	size -= 2;
	bytes = malloc(MAX(size, 1)); /* exactly: a byte too many is seen */
	assert(bytes);
	memcpy(bytes, data, size);
	read_terminal(bytes, size, step);
	read_reports(bytes, size, step);
	return 0;
}
