/*
 * What ThreadSanitizer gets wrong, in every test program of provider/ and, in its
 * builds, in threadfs. It does not know openat(2): a descriptor that a worker opens
 * so seems to be the one that had its number before, which the loop had registered
 * with epoll. And when a descriptor is closed while a spawned child still has its
 * copy, the kernel reports events of it, and libev unregisters a number that is
 * another thread's by now, in vain. (Not by TSAN_OPTIONS: the sandboxes would
 * inherit it.) What else it hides is seen by emptying it: docs/RELIABILITY.md has
 * what came then.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:epoll_ctl\n";
}
