/* See inject.h. Any thread; what is shared is guarded by a spin lock, as no call here blocks. */
#include "inject.h"

#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inject_i.h"
#include "util.h"

enum {
	CALLS_MAX = 1 << 17,
	PLACES_MAX = 1 << 15, /* a power of two */
};

struct place {
	uint64_t hash; /* 0: free */
	uint32_t turns;
};

struct state {
	atomic_flag lock;
	atomic_bool armed;
	bool counting;
	struct inject_call target;
	unsigned burst, variant;
	unsigned left; /* of the burst, once it has begun */
	enum inject_kind kind;
	struct inject_hit hit;
	size_t calls, places;
	struct place place[PLACES_MAX];
	struct inject_call call[CALLS_MAX];
};

static struct state *state;
static pthread_t quiet;         /* who armed it */
static __thread int loud;       /* of that thread */
static __thread bool busy_here; /* backtrace() may allocate */

static void enter(void)
{
	while (atomic_flag_test_and_set(&state->lock))
		sched_yield();
}

static void leave(void)
{
	atomic_flag_clear(&state->lock);
}

/* ---- who decides ---- */

/* libev's code: how it came to call somebody is of no interest, and depends on the time. */
static uintptr_t loop_begin, loop_end;

static int find_loop(struct dl_phdr_info *info, size_t size, void *ctx)
{
	if (!strstr(info->dlpi_name, "/libev."))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
			loop_begin = info->dlpi_addr + p->p_vaddr;
			loop_end = loop_begin + p->p_memsz;
		}
	}
	return 1;
}

/* Nor how the scenario was called: it is from elsewhere when calls are listed. */
static void *outside;

static int cut(void *const *frames, int n)
{
	for (int i = 0; i < n; i++) {
		uintptr_t at = (uintptr_t)frames[i];

		if ((at >= loop_begin && at < loop_end) || frames[i] == outside)
			return i;
	}
	return n;
}

static uint64_t hash_frames(void *const *frames, int n)
{
	uint64_t h = 14695981039346656037ull;

	for (int i = 0; i < n; i++) {
		h ^= (uint64_t)(uintptr_t)frames[i];
		h *= 1099511628211ull;
	}
	return h ?: 1;
}

/* How often this place came before. */
static uint32_t next_turn(uint64_t hash)
{
	for (size_t i = hash % PLACES_MAX, looked = 0; looked < PLACES_MAX; looked++) {
		struct place *p = &state->place[(i + looked) % PLACES_MAX];

		if (p->hash == 0 && state->places++ < PLACES_MAX)
			p->hash = hash;
		if (p->hash == hash)
			return p->turns++;
	}
	return 0;
}

static bool decide(const char *name, enum inject_kind kind, uint64_t place)
{
	uint32_t turn = next_turn(place);

	if (state->counting) {
		if (state->calls < CALLS_MAX)
			state->call[state->calls++] = (struct inject_call){ place, turn, name };
		return false;
	}
	if (state->hit.was) {
		if (state->left == 0 || kind != state->kind)
			return false;
		state->left--;
		return true;
	}
	if (place != state->target.place || turn != state->target.turn)
		return false;
	state->kind = kind;
	state->left = state->burst - 1;
	return true;
}

bool inject_fails(const char *name, enum inject_kind kind, const int *errors, size_t n)
{
	void *frames[INJECT_FRAMES + 2];
	bool fails, first;
	int depth, error;

	if (!state || !atomic_load(&state->armed) || busy_here ||
	    (pthread_equal(pthread_self(), quiet) && loud == 0))
		return false;
	busy_here = true;
	depth = backtrace(frames, ARRAY_SIZE(frames)) - 1; /* without this function */
	depth = cut(frames + 1, depth);
	enter();
	first = !state->hit.was;
	fails = decide(name, kind, hash_frames(frames + 1, depth));
	error = errors[state->variant % n];
	if (fails && first) {
		state->hit = (struct inject_hit){ true, name, error, MIN(depth, INJECT_FRAMES) };
		memcpy(state->hit.frames, frames + 1, (size_t)state->hit.depth * sizeof(frames[0]));
	}
	leave();
	busy_here = false;
	if (fails)
		errno = error;
	return fails;
}

/* ---- runs ---- */

void inject_init(void)
{
	void *frame[2];

	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (state == MAP_FAILED)
		abort();
	backtrace(frame, ARRAY_SIZE(frame)); /* loads its library */
	dl_iterate_phdr(find_loop, NULL);
	inject_hook_libraries();
}

static void reset(void)
{
	atomic_flag_clear(&state->lock);
	atomic_store(&state->armed, false);
	memset(state->place, 0, sizeof(state->place));
	memset(&state->hit, 0, sizeof(state->hit));
	state->places = 0;
	state->left = 0;
}

void inject_count(void)
{
	reset();
	state->counting = true;
	state->calls = 0;
}

void inject_plan(const struct inject_call *call, unsigned burst, unsigned variant)
{
	reset();
	state->counting = false;
	state->target = *call;
	state->burst = burst;
	state->variant = variant;
}

void inject_arm(void)
{
	void *frames[5];
	int n = backtrace(frames, ARRAY_SIZE(frames));

	/* Behind who arms; before him is this, and with AddressSanitizer its backtrace(). */
	for (int i = 0; i + 1 < n; i++)
		if (frames[i] == __builtin_return_address(0))
			outside = frames[i + 1];
	quiet = pthread_self();
	atomic_store(&state->armed, true);
}

void inject_disarm(void)
{
	atomic_store(&state->armed, false);
}

void inject_loud(int by)
{
	loud += by;
}

const struct inject_call *inject_calls(size_t *ret_count)
{
	*ret_count = state->calls;
	return state->call;
}

bool inject_is_burst(void)
{
	return !state->counting && state->burst > 1;
}

const struct inject_hit *inject_hit(void)
{
	return &state->hit;
}
