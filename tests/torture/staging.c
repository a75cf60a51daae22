/*
 * What is written here (fs/stage*.c, spool.c, ledger.c, salvage*.c) under torture, over a real
 * server that is not: a struct fs per run. What a flush confirms is in the sandbox, byte by byte;
 * what a write took and nobody confirmed is there in the end, after the next flush or in the next
 * life of the mount.
 */
#include <dirent.h>

#include "../fs/staged.h"
#include "backend_url.h"
#include "ident.h"
#include "inject.h"
#include "salvage.h"
#include "stage_i.h"
#include "staging.h"
#include "torture.h"

enum { LEN = 200 * 1000, PIECE = 50 * 1000, PIECES = LEN / PIECE };

static struct daemon *server;
static char url[] = "http://localhost";

/* One run's. */
static struct fsrig rig;
static struct loop *loop;
static struct provider *provider;
static char *content, *other;

/* ---- a run ---- */

static void make_provider(void)
{
	char id[SANDBOX_ID_LEN + 1], root[128];
	struct backend *b = NULL;

	snprintf(root, sizeof(root), "/mnt/user-data/t%d", (int)getpid());
	ident_make("u", "t", id);
	DEMAND(loop_new(&loop) == 0);
	DEMAND(backend_url_new(loop,
			       &(struct url_config){
				       .sandbox = { .socket = daemon_socket(server), .root = root },
				       .user = "u",
				       .thread = "t",
				       .id = id },
			       &b, NULL) == 0);
	DEMAND(provider_new(&(struct provider_config){ .loop = loop, .backend = b }, &provider,
			    NULL) == 0);
}

static int open_ledger(void)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	return LOUD(staging_open(&rig.fs, &why));
}

static void begin_life(void)
{
	make_provider();
	fsrig_start(&rig, loop, provider);
	rig.opt.source = SOURCE_URL;
	rig.opt.url = url;
}

static void end_life(void)
{
	DEMAND(fsrig_stop(&rig));
	provider_free(STEAL(provider));
	loop_free(STEAL(loop));
}

static void begin(void)
{
	snprintf(rig.host_dir, sizeof(rig.host_dir), "%s/t%d", daemon_data(server), (int)getpid());
	DEMAND(mkdir(rig.host_dir, 0777) == 0);
	DEMAND(scratch_dir(rig.cache));
	content = make_content(LEN, 1);
	other = make_content(LEN, 2);
	begin_life();
	DEMAND(open_ledger() == 0);
}

static unsigned records(void)
{
	char path[SCRATCH_MAX + 16];

	snprintf(path, sizeof(path), "%s/" LEDGER_DIR, rig.cache);
	return count_names(path);
}

static void end(void)
{
	end_life();
	DEMAND_THAT(records() == 0, "%u records are left", records());
	DEMAND(scratch_remove(rig.cache) && scratch_remove(rig.host_dir));
	free(content);
	free(other);
}

/* The node is made and looked at without failures. */
static struct staged begin_stage(const char *name, unsigned flags)
{
	struct staged f = { .r = &rig, .n = fsrig_node(&rig, name), .flags = flags, .mode = -1 };

	return f;
}

static bool open_it(struct staged *f)
{
	fsrig_run(f->r, do_open, f);
	return ENDED(f->result);
}

static int flush_it(struct staged *f)
{
	struct flushed w;
	int r;

	begin_flush(f, &w);
	r = end_flush(f, &w);
	(void)ENDED(r);
	return r;
}

static void must_flush(struct staged *f)
{
	int r = flush_it(f);

	DEMAND_THAT(r == 0, "once everything works: %s", strerrorname_np(-r));
}

static bool there(const char *name, const char *bytes, size_t len)
{
	return is_there(&rig, name, bytes, len);
}

/* ---- scenarios ---- */

/* Those pieces of which `done` is not set; all of them: returns whether. */
static bool write_pieces(struct staged *f, const char *bytes, bool done[PIECES])
{
	bool all = true;

	for (size_t i = 0; i < PIECES; i++) {
		if (!done[i])
			done[i] = write_at(f, i * PIECE, bytes + i * PIECE, PIECE) == 0;
		all = all && done[i];
	}
	return all;
}

/* What was written is read, or that is an error. */
static void read_back(struct staged *f, const char *bytes, const bool done[PIECES])
{
	static char have[PIECE];

	for (size_t i = 0; i < PIECES; i++) {
		ssize_t n = done[i] ? read_at(f, i * PIECE, have, PIECE) : -1;

		DEMAND(n != -ETIME);
		DEMAND_THAT(n < 0 || (n == PIECE && memcmp(have, bytes + i * PIECE, PIECE) == 0),
			    "piece %zu reads as something else: %zd bytes", i, n);
	}
}

static void write_new(void)
{
	bool done[PIECES] = { 0 }, opened, all = false;
	struct staged f;

	begin();
	f = begin_stage("x", STAGE_EMPTY);
	f.mode = 0644;
	inject_arm();
	opened = open_it(&f);
	if (opened) {
		all = write_pieces(&f, content, done);
		read_back(&f, content, done);
		if (flush_it(&f) == 0 && all)
			DEMAND_THAT(there("x", content, LEN), "confirmed, but not there");
	}
	inject_disarm();
	if (!opened)
		DEMAND(open_it(&f));
	DEMAND(write_pieces(&f, content, done));
	read_back(&f, content, done);
	must_flush(&f);
	DEMAND(there("x", content, LEN));
	close_staged(&f);
	end();
}

/* A piece in the middle of a file that is there, and less of its end. */
static void patch(void)
{
	enum { AT = 100 * 1000, SHORT = LEN - 1000 };
	bool opened, wrote = false, cut = false;
	struct staged f;

	begin();
	put_file(fsrig_host_path(&rig, "x"), content, LEN);
	f = begin_stage("x", 0);
	inject_arm();
	opened = open_it(&f);
	if (opened) {
		wrote = write_at(&f, AT, other, PIECE) == 0;
		cut = truncate_to(&f, SHORT) == 0;
		if (flush_it(&f) == 0 && wrote && cut) {
			memcpy(content + AT, other, PIECE);
			DEMAND(there("x", content, SHORT));
		}
	}
	inject_disarm();
	memcpy(content + AT, other, PIECE);
	DEMAND(opened || open_it(&f));
	DEMAND(wrote || write_at(&f, AT, other, PIECE) == 0);
	DEMAND(cut || truncate_to(&f, SHORT) == 0);
	must_flush(&f);
	DEMAND(there("x", content, SHORT));
	close_staged(&f);
	end();
}

/* Each appended line comes once, or not at all if somebody was told. */
static void append_lines(void)
{
	bool opened, first = false, second = false;
	struct staged f;
	int r = -EIO;

	begin();
	put_file(fsrig_host_path(&rig, "x"), "0", 1);
	f = begin_stage("x", STAGE_APPEND);
	inject_arm();
	opened = open_it(&f);
	if (opened) {
		first = append(&f, "1", 1) == 0;
		(void)flush_it(&f);
		second = append(&f, "2", 1) == 0;
		r = flush_it(&f);
	}
	inject_disarm();
	if (r == 0 && first && second)
		DEMAND(there("x", "012", 3));
	DEMAND_THAT(there("x", "0", 1) || there("x", "01", 2) || there("x", "02", 2) ||
			    there("x", "012", 3),
		    "appended twice, or something else");
	if (opened) {
		/* A piece of which nobody knows stays an error until the file is closed. */
		r = flush_it(&f);
		DEMAND(r != 0 || !first || !second || there("x", "012", 3));
		fsrig_run(&rig, do_free, f.s);
	}
	fsrig_put(&rig, f.n);
	f = begin_stage("y", STAGE_EMPTY);
	f.mode = 0644;
	DEMAND(open_it(&f) && write_at(&f, 0, "y", 1) == 0);
	must_flush(&f);
	DEMAND(there("y", "y", 1));
	close_staged(&f);
	end();
}

/* ---- from one life to the next ---- */

static void do_shelve(void *ctx)
{
	struct staged *f = ctx;

	f->r->fs.ending = true;
	f->result = staging_shelve(f->s);
}

static void do_salvage(void *ctx)
{
	salvage_begin(&((struct fsrig *)ctx)->fs);
}

static void do_retry(void *ctx)
{
	staging_retry(&((struct fsrig *)ctx)->fs);
}

static bool is_saved(void *ctx)
{
	struct salvage_view v;

	return !salvage_next(&((struct fsrig *)ctx)->fs, NULL, &v);
}

/* Nobody is at it: done, or for later. */
static bool is_quiet(void *ctx)
{
	const struct fs *fs = &((struct fsrig *)ctx)->fs;
	const struct salvage *s = NULL;
	struct salvage_view v;

	while ((s = salvage_next(fs, s, &v))) {
		if (v.state == SALVAGE_RUNS || (v.state == SALVAGE_WAITS && v.error == 0))
			return false;
	}
	return true;
}

/* Everything is in memory when the mount ends, with no upload confirmed. */
static bool first_life(void)
{
	bool done[PIECES] = { 0 }, kept;
	struct staged f = begin_stage("x", STAGE_EMPTY);

	f.mode = 0644;
	DEMAND(open_it(&f) && write_pieces(&f, content, done));
	inject_arm();
	fsrig_run(&rig, do_shelve, &f);
	inject_disarm();
	kept = f.result == 0;
	close_staged(&f);
	end_life();
	DEMAND_THAT(!kept || records() == 1, "%u records", records());
	return kept;
}

static void recover(void)
{
	bool kept;

	begin();
	kept = first_life();
	begin_life();
	inject_arm();
	if (ENDED(open_ledger())) {
		fsrig_run(&rig, do_salvage, &rig);
		DEMAND(fsrig_wait(&rig, is_quiet, &rig));
		inject_disarm();
		fsrig_run(&rig, do_retry, &rig);
		DEMAND_THAT(fsrig_wait(&rig, is_saved, &rig), "it is never delivered");
	}
	inject_disarm();
	end_life();
	/* And once more, for what the second one did not even find. */
	begin_life();
	DEMAND(open_ledger() == 0);
	fsrig_run(&rig, do_salvage, &rig);
	DEMAND_THAT(fsrig_wait(&rig, is_saved, &rig), "it is never delivered");
	DEMAND_THAT(!kept || there("x", content, LEN), "what was kept is lost");
	DEMAND_THAT(count_names(rig.host_dir) == (kept ? 1 : count_names(rig.host_dir)),
		    "more than one");
	end();
}

/* Confirmed late: what is written down meanwhile goes again. */
static bool is_written_down(void *ctx)
{
	return records() > 0 || stage_is_clean(((struct staged *)ctx)->s);
}

static void journal(void)
{
	struct staged f;
	bool done[PIECES] = { 0 };

	begin();
	f = begin_stage("x", STAGE_EMPTY);
	f.mode = 0644;
	DEMAND(open_it(&f));
	inject_arm();
	(void)write_pieces(&f, content, done);
	for (unsigned i = 0; i < 40 && !is_written_down(&f); i++) /* one sweep or two */
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	(void)flush_it(&f);
	inject_disarm();
	DEMAND(write_pieces(&f, content, done));
	must_flush(&f);
	DEMAND(there("x", content, LEN));
	close_staged(&f);
	end();
}

/* ---- the program ---- */

static bool start(void)
{
	server = daemon_start(&(struct daemon_options){ .dialect = getenv("TFS_DIALECT") });
	return server != NULL;
}

static bool stop(void)
{
	return daemon_stop(server) == 0;
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "write", write_new }, { "patch", patch },     { "append", append_lines },
		{ "recover", recover }, { "journal", journal },
	};

	return torture_main(
		argc, argv,
		&(struct torture_area){ "staging", scenarios, ARRAY_SIZE(scenarios), start, stop });
}
