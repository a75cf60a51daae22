/* See terminal.h. */
#include "terminal.h"

#include <curses.h>
#include <term.h>

bool terminal_is_screen(void)
{
	const char *move;
	bool can;
	int err;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return false;
	if (setupterm(NULL, STDOUT_FILENO, &err) != OK)
		return false;
	move = tigetstr("cup");
	can = move && move != (char *)-1;
	del_curterm(cur_term); /* newterm() makes its own */
	return can;
}
