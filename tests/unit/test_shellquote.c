/* Quoting for the shell, judged by a real bash. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "run_bash.h"
#include "shellquote.h"

static void assert_printable(const struct buf *b)
{
	for (size_t i = 0; i < b->len; i++)
		assert_in_range((unsigned char)b->data[i], ' ', '~');
}

/* Words, each with its NUL, through bash: they must come back as they were. */
static void assert_survive(const struct buf *words)
{
	static const char *const envs[] = { "LC_ALL=C", "LC_ALL=C.UTF-8" };
	struct buf script CLEANUP_BUF = BUF_INIT(0), quoted CLEANUP_BUF = BUF_INIT(0);

	/* Lines are read as an interactive shell reads them: with history events. */
	buf_puts(&script, "set -o history -o histexpand\n");
	for (const char *w = words->data; w < words->data + words->len; w += strlen(w) + 1) {
		buf_reset(&quoted);
		assert_int_equal(shellquote(&quoted, w, strlen(w)), 0);
		assert_printable(&quoted);
		assert_int_equal(buf_printf(&script, "printf '%%s\\0' %s\n", quoted.data), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(envs); i++) {
		struct buf out CLEANUP_BUF = BUF_INIT(0);

		assert_int_equal(run_bash(envs[i], &script, "", &out), 0);
		assert_int_equal(out.len, words->len);
		assert_memory_equal(out.data, words->data, out.len);
	}
}

static void add_word(struct buf *words, const char *word)
{
	assert_int_equal(buf_append(words, word, strlen(word) + 1), 0);
}

static void bash_reads_every_byte(void **state)
{
	struct buf words CLEANUP_BUF = BUF_INIT(0);
	char all[256];

	for (int c = 1; c < 256; c++) {
		char alone[2] = { (char)c, '\0' };
		char between[4] = { 'a', (char)c, '7', '\0' }; /* a digit must not join an escape */

		add_word(&words, alone);
		add_word(&words, between);
		all[c - 1] = (char)c;
	}
	all[255] = '\0';
	add_word(&words, all);
	assert_survive(&words);
}

static void bash_reads_nasty_words(void **state)
{
	static const char *const rows[] = {
		"",
		" ",
		"'",
		"''",
		"\\",
		"\\'",
		"a b",
		"$HOME",
		"$(id)",
		"`id`",
		"!!",
		"it's !! fun",
		"-rf",
		"~",
		"*",
		"a\nb",
		"\n",
		"a'; exit 3; '",
		"$'\\n'",
		"\xc3\xa9",
		"\xc3",
		"\xff",
		"\r\n",
		"\x1b[2J",
		"#comment",
		"{a,b}",
		"a\\",
		"'\\",
		"\\\n",
		"%s%n",
		"\"$(id)\"",
		"don't!\"x!",
		"\x03\x04\x1a",
		"\xe2\x80\xa8",
	};
	struct buf words CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		add_word(&words, rows[i]);
	assert_survive(&words);
}

static void bash_reads_random_words(void **state)
{
	struct buf words CLEANUP_BUF = BUF_INIT(0);
	char word[4096];

	srandom(2);
	for (int round = 0; round < 600; round++) {
		/* every kind of length, and every tenth word as long as a path may be */
		size_t len = round % 10 ? (size_t)random() % 60 : 4095;
		bool quotes = random() % 2;

		for (size_t i = 0; i < len; i++)
			word[i] = quotes && random() % 3 == 0 ? "'\\!$\n7"[random() % 6]
							      : (char)(1 + random() % 255);
		word[len] = '\0';
		add_word(&words, word);
	}
	assert_survive(&words);
}

static void forms(void **state)
{
	static const char *const rows[][2] = {
		{ "", "''" },
		{ "plain", "'plain'" },
		{ "/a b/$c", "'/a b/$c'" },
		{ "a\\b!", "'a\\b!'" },
		{ "it's", "$'it\\047s'" },
		{ "'\\!", "$'\\047\\134\\041'" },
		{ "a\nb", "$'a\\012b'" },
		{ "\xc3\xa9", "$'\\303\\251'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);

		assert_int_equal(shellquote(&b, rows[i][0], strlen(rows[i][0])), 0);
		assert_string_equal(b.data, rows[i][1]);
	}
}

static void errors(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0), small CLEANUP_BUF = BUF_INIT(4);

	assert_int_equal(shellquote(&b, "a\0b", 3), -EINVAL);
	assert_int_equal(shellquote(&b, "a", 1), -EINVAL); /* sticky, as all of a buffer's are */
	assert_int_equal(shellquote(&small, "abc", 3), -EFBIG);
	assert_int_equal(shell_printf(&small, "x"), -EFBIG);
}

static void templates(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(shell_printf(&b, "exec mkdir -m %o -- %s", 0755u, "/a'b"), 0);
	assert_string_equal(b.data, "exec mkdir -m 755 -- $'/a\\047b'");
	buf_reset(&b);
	assert_int_equal(shell_printf(&b, "%d %d%s%s", (int64_t)INT64_MIN, (int64_t)-1, "", "%s"),
			 0);
	assert_string_equal(b.data, "-9223372036854775808 -1'''%s'");
	buf_reset(&b);
	/* what is no directive of ours stands, also at the end */
	assert_int_equal(shell_printf(&b, "100%% -printf '%y %m' %"), 0);
	assert_string_equal(b.data, "100% -printf '%y %m' %");
	buf_reset(&b);
	assert_int_equal(shell_printf(&b, "%s", "%d%o"), 0);
	assert_string_equal(b.data, "'%d%o'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bash_reads_every_byte),
		cmocka_unit_test(bash_reads_nasty_words),
		cmocka_unit_test(bash_reads_random_words),
		cmocka_unit_test(forms),
		cmocka_unit_test(errors),
		cmocka_unit_test(templates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
