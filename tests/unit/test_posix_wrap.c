/* Wrapped scripts, run by a real bash; and what strangers make of their output. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "posix_wrap.h"
#include "run_bash.h"

#define PREFIX "/tmp/.threadfs-unit-test"

static struct buf script_of(const char *text)
{
	struct buf b = BUF_INIT(0);

	assert_int_equal(buf_puts(&b, text), 0);
	return b;
}

/* ---- bash ---- */

static int bash_bytes(const char *text, struct buf *out)
{
	struct buf script CLEANUP_BUF = script_of(text), wrapped CLEANUP_BUF = BUF_INIT(0);
	struct buf printed CLEANUP_BUF = BUF_INIT(0);
	bool cut = true;
	int code;

	wrap_bash_bytes(&wrapped, &script);
	assert_null(strchr(wrapped.data, '\n'));
	code = run_bash("LC_ALL=C", &wrapped, "2>/dev/null", &printed);
	assert_int_equal(unwrap_bash_bytes(out, printed.data, &cut), 0);
	assert_false(cut);
	return code;
}

static void bash_gives_bytes_and_exit_code(void **state)
{
	struct buf out CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(bash_bytes("printf 'a\\0\\377\\n'; exit 7", &out), 7);
	assert_int_equal(out.len, 4);
	assert_memory_equal(out.data, "a\0\377\n", 4);
	buf_reset(&out);
	assert_int_equal(bash_bytes("exec true", &out), 0);
	assert_int_equal(out.len, 0);
	assert_int_equal(bash_bytes("exec no-such-tool", &out), 127);
	assert_int_equal(out.len, 0);
}

static void bash_output_that_was_cut_is_noticed(void **state)
{
	static const char *const texts[] = {
		"",    "B", "E", "QUJDRA==E", "BQUJD", "QUJD", "BQU\n\n... [9 cut] ...\n\nRA==E",
		"BQE",
	};
	struct buf out CLEANUP_BUF = BUF_INIT(0);
	bool cut;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		cut = false;
		assert_int_equal(unwrap_bash_bytes(&out, texts[i], &cut), 0);
		assert_true(cut);
		assert_int_equal(out.len, 0);
	}
	assert_int_equal(unwrap_bash_bytes(&out, NULL, &cut), 0);
	assert_true(cut);
	assert_int_equal(unwrap_bash_bytes(&out, "BE", &cut), 0);
	assert_false(cut);
}

/* ---- shell ---- */

struct outcome {
	struct buf out, err;
	int exit_code;
};

static void outcome_release(struct outcome *o)
{
	buf_release(&o->out);
	buf_release(&o->err);
}

/* In a shell with habits: aliases, noclobber, nounset. */
static void shell(const char *text, size_t err_max, struct outcome *ret)
{
	struct buf script CLEANUP_BUF = script_of(text), wrapped CLEANUP_BUF = BUF_INIT(0);
	struct buf session CLEANUP_BUF = BUF_INIT(0), printed CLEANUP_BUF = BUF_INIT(0);
	bool cut = true;

	*ret = (struct outcome){ .exit_code = -1 };
	wrap_shell(&wrapped, &script, "tf01234567", err_max);
	assert_null(strchr(wrapped.data, '\n'));
	assert_null(strstr(wrapped.data, "<tf01234567>"));
	buf_puts(&session, "shopt -s expand_aliases; set -C -u; alias cat=false rm=false tail=false"
			   " wc=false mktemp=false\necho noise\n");
	buf_append(&session, wrapped.data, wrapped.len);
	buf_puts(&session, "\necho more noise");
	assert_int_equal(run_bash("LC_ALL=C.UTF-8", &session, "2>&1", &printed), 0);
	assert_int_equal(unwrap_shell(printed.data, "tf01234567", &ret->out, &ret->err,
				      &ret->exit_code, &cut),
			 0);
	assert_false(cut);
}

static void shell_keeps_streams_apart(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	shell("printf 'a\\0b\\n'; printf 'oh\\n\\377' >&2; exit 9", 1000, &o);
	assert_int_equal(o.exit_code, 9);
	assert_int_equal(o.out.len, 4);
	assert_memory_equal(o.out.data, "a\0b\n", 4);
	assert_string_equal(o.err.data, "oh\n\377");
}

static void shell_gives_nothing_for_nothing(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	shell("exec true", 1000, &o);
	assert_int_equal(o.exit_code, 0);
	assert_int_equal(o.out.len, 0);
	assert_int_equal(o.err.len, 0);
}

static void shell_speaks_the_c_locale(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	shell("printf %s $LC_ALL", 1000, &o);
	assert_string_equal(o.out.data, "C");
}

static void shell_keeps_the_end_of_stderr(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	shell("for i in {1..20000}; do echo line $i >&2; done; exit 1", 100, &o);
	assert_int_equal(o.exit_code, 1);
	assert_in_range(o.err.len, 90, 100);
	assert_string_equal(o.err.data + o.err.len - 11, "line 20000\n");
}

static void shell_gives_no_input(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	shell("command cat", 1000, &o);
	assert_int_equal(o.exit_code, 0);
	assert_int_equal(o.out.len, 0);
}

static void shell_output_that_was_cut_is_noticed(void **state)
{
	static const char *const texts[] = {
		"\n<m>\nQUJD",               /* the end */
		"QUJD\n<m>\n",               /* the beginning */
		"\n<m>\nQU[...]RA==\n<m>\n", /* the middle */
		"<m>A<m>",
	};
	struct outcome o CLEANUP(outcome_release) = { 0 };
	bool cut;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		cut = false;
		assert_int_equal(unwrap_shell(texts[i], "m", &o.out, &o.err, &o.exit_code, &cut),
				 0);
		assert_true(cut);
	}
}

static void shell_nonsense_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"hello",
		"<m><m>",          /* nothing */
		"<m>QUJD<m>",      /* no NUL */
		"<m>AEE=<m>",      /* no exit code */
		"<m>AAo=<m>",      /* an empty one */
		"<m>AAoz MDA=<m>", /* 300 */
		"<m>AAot MQ==<m>", /* -1 */
		"<m>AAoxeA==<m>",  /* 1x */
		"<m>AAo5OTk5OTk5OTk5OTk5OTk5OTk5OQ==<m>",
	};
	struct outcome o CLEANUP(outcome_release) = { .exit_code = 77 };
	bool cut;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(unwrap_shell(texts[i], "m", &o.out, &o.err, &o.exit_code, &cut),
				 -EBADMSG);
	assert_int_equal(o.exit_code, 77);
	assert_int_equal(o.out.len + o.err.len, 0);
}

/* ---- output in a file ---- */

static bool any_left(void)
{
	struct buf script CLEANUP_BUF = script_of("compgen -G '" PREFIX ".*'");
	struct buf out CLEANUP_BUF = BUF_INIT(0);

	return run_bash("LC_ALL=C", &script, "", &out) == 0;
}

static void spill(const char *text, size_t inline_max, struct outcome *ret)
{
	struct buf script CLEANUP_BUF = script_of(text), spilling CLEANUP_BUF = BUF_INIT(0);

	wrap_spill(&spilling, &script, PREFIX, inline_max);
	shell(spilling.data, 1000, ret);
}

static void little_output_is_printed(void **state)
{
	struct outcome o CLEANUP(outcome_release);

	spill("printf '0\\00012\\n'; echo oh >&2; exit 4", 5, &o);
	assert_int_equal(o.exit_code, 4);
	assert_int_equal(o.out.len, 6);
	assert_memory_equal(o.out.data, "I0\00012\n", 6);
	assert_string_equal(o.err.data, "oh\n");
	assert_false(any_left());
}

static void much_output_goes_to_a_file(void **state)
{
	struct outcome o CLEANUP(outcome_release);
	struct stat st;
	char text[8] = "";
	FILE *f;

	spill("printf 0123456; exit 4", 6, &o);
	assert_int_equal(o.exit_code, 4);
	assert_int_equal(strncmp(o.out.data, "S" PREFIX ".", strlen(PREFIX) + 2), 0);
	assert_int_equal(stat(o.out.data + 1, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	f = fopen(o.out.data + 1, "re");
	assert_non_null(f);
	assert_int_equal(fread(text, 1, 7, f), 7);
	fclose(f);
	assert_string_equal(text, "0123456");
	assert_int_equal(unlink(o.out.data + 1), 0);
	assert_false(any_left());
}

static void no_file_no_command(void **state)
{
	struct buf script CLEANUP_BUF = script_of("echo ran"), wrapped CLEANUP_BUF = BUF_INIT(0);
	struct outcome o CLEANUP(outcome_release);

	wrap_spill(&wrapped, &script, "/no/such/dir", 100);
	shell(wrapped.data, 1000, &o);
	assert_int_not_equal(o.exit_code, 0);
	assert_int_equal(o.out.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bash_gives_bytes_and_exit_code),
		cmocka_unit_test(bash_output_that_was_cut_is_noticed),
		cmocka_unit_test(shell_keeps_streams_apart),
		cmocka_unit_test(shell_gives_nothing_for_nothing),
		cmocka_unit_test(shell_speaks_the_c_locale),
		cmocka_unit_test(shell_keeps_the_end_of_stderr),
		cmocka_unit_test(shell_gives_no_input),
		cmocka_unit_test(shell_output_that_was_cut_is_noticed),
		cmocka_unit_test(shell_nonsense_is_refused),
		cmocka_unit_test(little_output_is_printed),
		cmocka_unit_test(much_output_goes_to_a_file),
		cmocka_unit_test(no_file_no_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
