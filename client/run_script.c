/*
 * See run_script.h. The texts below run in the sandbox, with nothing but bash,
 * coreutils, util-linux (setsid, flock) and /proc. Pure.
 *
 * Every run has a supervisor in a session of its own: it outlives the command
 * that started it, sees the run's end whatever ends it (exit, exec, a signal),
 * and is not in the way of what the run does to itself. Output goes through
 * pipes, not straight into files: a script that writes to /dev/stderr would
 * empty a file by opening it.
 */
#include "run_script.h"

#include <signal.h>
#include <string.h>

#include "base64.h"
#include "shellquote.h"

/* ---- what the supervisors have in common ---- */

/* Whether a file names a process that lives: the pid alone may be another's by now. */
#define ALIVE                                                                                      \
	"alive() { local p s l; { read -r p s <\"$1\" && read -r l <\"/proc/$p/stat\"; }"          \
	" 2>/dev/null || return; l=${l##*) }; set -- $l;"                                          \
	" [ \"${20}\" = \"$s\" ] && [ \"$1\" != Z ]; };"

/*
 * born PID: writes what alive() wants to know. collect DIR: the run's pipes and
 * who reads them: tee, as it goes on reading (and so does the run) when there is no room for
 * the output; only how it ends tells that some is lost. 3 and 4 keep the pipes open while the run
 * may still open them; 5 and 6 are there to see whether something is left in them.
 *
 * drain: the run has ended, but a child of it may hold the pipe: then what was
 * written before is out when the pipe is empty and after that tee sleeps, or
 * when more has come than a pipe holds. What such a child writes from then on
 * is read, so that it can go on, and thrown away.
 */
static const char common[] =
	"for f in /proc/self/fd/*; do f=${f##*/}; [[ $f -le 2 ]] || eval \"exec $f>&-\"; done\n"
	"born() { local l p=$1; read -r l </proc/$p/stat; l=${l##*) }; set -- $l\n"
	"echo \"$p ${20}\"; }\n"
	"collect() { mkfifo -m 666 \"$1/o\" \"$1/e\" &&\n"
	"exec 3<>\"$1/o\" 4<>\"$1/e\" 5<\"$1/o\" 6<\"$1/e\" || return\n"
	"tee \"$1/out\" <&5 >/dev/null 3>&- 4>&- 5<&- 6<&- 7<&- 8>&- 9>&- & oc=$!\n"
	"tee \"$1/err\" <&6 >/dev/null 3>&- 4>&- 5<&- 6<&- 7<&- 8>&- 9>&- & ec=$!; lost=; }\n"
	"drain() { local l n=0 s=$(stat -c %s \"$3\")\n"
	"while read -r l </proc/$1/stat && [[ $l != *') Z '* ]]; do\n"
	"if ! read -t 0 -u $2; then\n"
	"read -r l </proc/$1/stat && [[ $l == *'(tee) S '* ]] && break; fi\n"
	"((n++ < 10)) || (($(stat -c %s \"$3\") - ${s:-0} < 2000000 && n < 1000)) || break\n"
	"sleep .00$((n < 5 ? 1 : 9)); done\n"
	"cat <&$2 >/dev/null 5<&- 6<&- 7<&- 8>&- 9>&- & kill $1; wait $1; [ $? != 1 ] || lost=1; "
	"}\n"
	"finish() { exec 3>&- 4>&-; drain $oc 5 \"$1/out\"; drain $ec 6 \"$1/err\"; exec 5<&- "
	"6<&-\n"
	"set -- \"$1\" \"$2\" $(stat -c %s \"$1/out\" \"$1/err\"); [ -z \"$lost\" ] || set -- "
	"\"$1\" -1 \"$3\" \"$4\"\n"
	"echo \"$2 ${3:-0} ${4:-0}\" 3<>\"$1/rc.t\" >&3; mv -f \"$1/rc.t\" \"$1/rc\"; }\n";

/*
 * Starts a supervisor, which says "up" when there is no more that could fail,
 * and lets go of its stdout. Job control, so that it, and with it the run, does
 * not ignore SIGINT as other commands in the background do.
 */
static void put_launch(struct buf *to, const char *text)
{
	struct buf whole CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&whole, common);
	buf_puts(&whole, text);
	buf_puts(to, "r=$(set -m; setsid \"$BASH\" -c ");
	if (whole.error)
		to->error = whole.error;
	else
		shellquote(to, whole.data, whole.len);
	buf_puts(to, " threadfs-run");
}

static void put_launched(struct buf *to, const char *undo)
{
	buf_printf(to,
		   " </dev/null 2>/dev/null &); [ \"$r\" = up ] ||"
		   " { rm -rf %s; echo 'cannot start: Resource temporarily unavailable' >&2;"
		   " exit 1; };",
		   undo);
}

static void put_run(struct buf *to, const char *id)
{
	buf_printf(to, "d=" RUN_DIR "%s;", id);
}

/*
 * One at a time makes or removes what starts need, until the script ends or
 * closes 8. The lock is on the directory itself, so that nothing is left of it.
 */
#define LOCK " exec 8</tmp; flock -w 10 8 2>/dev/null;"

static void put_piece(struct buf *to, const char *file, const struct run_piece *piece)
{
	buf_puts(to, " printf %s '");
	base64_encode(to, piece->bytes, piece->len);
	buf_printf(to,
		   "' | base64 -d | dd of=$d/%s bs=128K seek=%llu iflag=fullblock oflag=seek_bytes"
		   " conv=notrunc status=none || exit;",
		   file, (unsigned long long)piece->offset);
}

void run_script_piece(struct buf *to, const char *id, const struct run_piece *piece)
{
	put_run(to, id);
	buf_puts(to, LOCK " [ ! -e $d/bar ] || { rm -rf $d; exit 1; };"
			  " mkdir -m 700 -p $d || exit;");
	put_piece(to, "script", piece);
}

/* Without them the supervisor could say nothing, and the run's output would be lost. */
#define NEEDS                                                                                      \
	" for t in tee setsid mkfifo stat; do type -P $t >/dev/null ||"                            \
	" { echo \"running commands takes '$t', which the sandbox does not have\" >&2; exit 127; " \
	"};"                                                                                       \
	" done;"

/*
 * The run's directory with what it has before its supervisor comes. Its end and
 * its killing have their place from the beginning: they must be told when there is no room left.
 */
static void put_making(struct buf *to, const char *id, const struct run_piece *piece)
{
	put_run(to, id);
	buf_puts(to, NEEDS LOCK " mkdir -m 700 -p $d && mkdir $d/once ||"
				" { [ ! -e $d/bar ] || rm -rf $d; exit 1; };");
	put_piece(to, "script", piece);
	buf_puts(to, " : >|$d/out && : >|$d/err &&"
		     " printf %64s >|$d/rc.t && printf %64s >|$d/kill.t || exit;");
}

/* ---- a process of its own ---- */

/*
 * feeder DIR: copies what comes to the file `in`, and makes holes where it was.
 * The end mark is looked for before the size, so that nothing is missed; what is in the
 * bell when it reads that came before it looks at the file again. `at` keeps its
 * length, so that it can be written when there is no room for more.
 */
static const char feeder[] =
	"exec 9<>\"$1/bell\"; n=0\n"
	"while :; do e=; [ -e \"$1/end\" ] && e=1; s=$(stat -c %s \"$1/in\") || exit\n"
	"if ((s > n)); then dd if=\"$1/in\" bs=64K iflag=skip_bytes,count_bytes skip=$n\\\n"
	" count=$((s - n)) status=none 9>&- || { : >\"$1/deaf\"; exit; }; n=$s\n"
	"printf %20d $n 8<>\"$1/at\" >&8; fallocate -p -o 0 -l $n \"$1/in\" 9>&- >/dev/null 2>&1\n"
	"elif [ \"$e\" ]; then exit; else IFS= read -r -N 1 -u 9 _; fi; done\n";

/*
 * DIR FEEDER [NAME=VALUE…]. The run is in the foreground, as only that keeps
 * its signals as they are. setsid is what becomes bash: the pid stays.
 *
 * A script of one line runs so that bash complains of it as of one behind -c, without the
 * name of a file of ours; but not on the command line, where a `pkill -f` of it would
 * find it. One of more lines keeps the numbers of its lines, and what functions have.
 */
static const char alone[] =
	"d=$1 f=$2; shift 2; s=$(type -P setsid) e=$(type -P env)\n"
	"if [ -p \"$d/bell\" ]; then exec 7< <(exec setsid \"$BASH\" -c \"$f\" threadfs-feed "
	"\"$d\")\n"
	"f=$!; else exec 7</dev/null; f=; fi\n"
	"collect \"$d\" && born $$ >\"$d/sup\" || exit\n"
	"echo up; exec >/dev/null\n"
	"(born $BASHPID >\"$d/child\" && [ ! -e \"$d/killed\" ] && [ -e \"$d/once\" ] ||\n"
	"{ read -r k <\"$d/killed\"; exit $((128 + ${k:-9})); }\n"
	"c=(\"$d/script\"); [[ $(<\"$c\") == *$'\\n'* ]] || { exec 9<\"$c\" || exit\n"
	"c=(-c 'eval \"exec 9<&-;$(</proc/self/fd/9)\"' bash); }\n"
	"exec \"$e\" -u LC_ALL \"$@\" \"$s\" \"$BASH\" \"${c[@]}\") \\\n"
	"<&7 >\"$d/o\" 2>\"$d/e\" 3>&- 4>&- 5<&- 6<&- 7<&-\n"
	"r=$?; [ -z \"$f\" ] || kill -9 -- -$f $f; exec 7<&-; finish \"$d\" $r\n";

void run_script_start(struct buf *to, const char *id, const struct run_piece *piece,
		      const char *dir, const char *words, bool fed)
{
	put_making(to, id, piece);
	if (fed)
		buf_puts(to, " mkfifo $d/bell && : >|$d/in && printf %20d 0 >|$d/at || exit;");
	shell_printf(to, " command cd -- %s || { rm -rf $d; exit 1; };", dir);
	buf_puts(to, " : >|$d/started;");
	put_launch(to, alone);
	shell_printf(to, " $d %s", feeder);
	buf_puts(to, words);
	put_launched(to, "$d");
}

/* ---- in a shell ---- */

/*
 * The shell itself: DIR GENERATION. What the runs do to it happens here, so
 * that it does as little as it can. The output is bash's own, not that of the
 * script alone, for a trap at its exit. A loop of one round takes a `break` or
 * `continue`. Orders come through a pipe that is open only while
 * one is awaited; without a supervisor there is none, or no more in it.
 *
 * SIGUSR2 is for a run that was killed: the trap makes bash return from every
 * function and file that is being executed, so the shell survives with what it
 * has in its variables even if it is in a loop.
 */
static const char shell[] =
	"__tfs_dir=$1 __tfs_gen=$2 __tfs_d=; shift 2\n"
	"read -r __tfs_i </proc/$$/stat; __tfs_i=${__tfs_i##*) }; __tfs_i=($__tfs_i)\n"
	"builtin echo \"$$ ${__tfs_i[19]}\" >\"$__tfs_dir/shell\"; unset __tfs_i\n"
	"__tfs_halt() { return 2; }\n"
	"trap '[[ -z $__tfs_d || ! -e $__tfs_d/killed ]] || { __tfs_k=1; shopt -s extdebug; set "
	"-T\n"
	"trap \"((\\${#BASH_SOURCE[@]} < 1)) || __tfs_halt\" DEBUG; }' USR2\n"
	"while TMOUT= IFS= builtin read -r __tfs_d <\"$__tfs_dir/go\"; do __tfs_k= __tfs_r=0\n"
	"if [[ -e $__tfs_d/killed || ! -p $__tfs_d/e ]]; then __tfs_k=1; else\n"
	"exec </dev/null >\"$__tfs_d/o\" 2>\"$__tfs_d/e\"\n"
	"for __tfs_i in 1; do . \"$__tfs_d/script\"; __tfs_r=$?; done\n"
	"exec </dev/null >/dev/null 2>&1; fi\n"
	"if [[ $__tfs_k ]]; then builtin trap - DEBUG; set +T; shopt -u extdebug\n"
	"builtin read -r __tfs_r <\"$__tfs_d/killed\"; __tfs_r=$((128 + __tfs_r)); fi\n"
	"__tfs_d=; builtin echo \"end $__tfs_gen $__tfs_r\" 9<>\"$__tfs_dir/q\" >&9; done\n";

/*
 * Its supervisor: DIR ROOT SHELL. One loop over messages: "run DIR" from a
 * start, "end" from the shell, "dead" from the subshell that waits for it, "bye"
 * when there will be no more. Blocked in read, it costs nothing.
 */
static const char keeper[] =
	"dir=$1 root=$2 shell=$3 gen=0 b= cur= bye= queue=(); set -m\n"
	"fresh() { rm -f \"$dir/go\"; mkfifo \"$dir/go\"; exec 8<>\"$dir/go\"; b=1; ((++gen))\n"
	"(cd -- \"$root\" || cd /\n"
	"env -u LC_ALL setsid \"$BASH\" -c \"$shell\" bash \"$dir\" $gen </dev/null \\\n"
	"3>&- 4>&- 5<&- 6<&- 8>&- 9>&-; echo \"dead $gen $?\" >&9) 3>&- 4>&- 5<&- 6<&- 8>&- & }\n"
	"begin() { [ -e \"$1/script\" ] && [ ! -e \"$1/rc\" ] || return; : >\"$1/started\"\n"
	"collect \"$1\" || return\n"
	"if [ -e \"$1/killed\" ]; then read -r p <\"$1/killed\"; finish \"$1\" $((128 + p)); "
	"return; fi\n"
	"if [ \"$b\" ]; then until [ -s \"$dir/shell\" ]; do sleep .01; done\n"
	"read -r p s <\"$dir/shell\"; cat /proc/$p/task/$p/children >\"$1/before\"; else fresh; "
	"fi\n"
	"cur=$1; echo \"$1\" >&8; }\n"
	"exec 9<>\"$dir/q\"; born $$ >\"$dir/sup\" || exit\n"
	"echo up; exec >/dev/null\n"
	"while read -r what x y <&9; do case $what in\n"
	"run) queue+=(\"$x\");;\n"
	"end) if [ \"$x\" = $gen ] && [ \"$cur\" ]; then finish \"$cur\" \"$y\"; cur=; fi;;\n"
	"dead) if [ \"$x\" = $gen ]; then b=; rm -f \"$dir/shell\"\n"
	"[ -z \"$cur\" ] || finish \"$cur\" \"$y\"; cur=; fi;;\n"
	"bye) bye=1;; esac\n"
	"while [ -z \"$cur\" ] && ((${#queue[@]})); do\n"
	"x=${queue[0]}; queue=(\"${queue[@]:1}\"); begin \"$x\"; done\n"
	"[ -z \"$bye$cur\" ] || [ \"$cur\" ] || { rm -rf \"$dir\"; exit; }; done\n";

/* A shell without its supervisor is of no use to anybody. */
#define BURY                                                                                       \
	" if alive $h/shell; then read -r p s <$h/shell; kill -9 $p; fi 2>/dev/null; rm -rf $h;"

/* Not 1<>: bash 5.2 forgets the 1 when it prints a command substitution for itself. */
void run_script_enqueue(struct buf *to, const char *id, const struct run_piece *piece,
			const char *shell_id, const char *root)
{
	put_making(to, id, piece);
	buf_printf(to, " h=" RUN_DIR "%s; " ALIVE " if ! alive $h/sup; then" BURY, shell_id);
	buf_puts(to, " mkdir -m 700 $h && mkfifo $h/q || { rm -rf $d; exit 1; }; ");
	put_launch(to, keeper);
	shell_printf(to, " $h %s %s", root, shell);
	put_launched(to, "$d $h");
	buf_puts(to, " fi; ln -s $h $d/sh && cp $h/sup $d/sup || exit; { echo \"run $d\" >&9; } "
		     "9<>$h/q");
}

void run_script_bye(struct buf *to, const char *shell_id)
{
	buf_printf(to,
		   "( h=" RUN_DIR "%s; " ALIVE LOCK " if [ -p $h/q ] && alive $h/sup;"
		   " then { echo bye >&9; } 9<>$h/q; else" BURY " fi )",
		   shell_id);
}

/* ---- looking ---- */

void run_script_look(struct buf *to, const char *id, uint64_t out_offset, uint64_t err_offset,
		     size_t max, int64_t wait_ms)
{
	put_run(to, id);
	/* The exit code before the sizes; and once more if whoever writes it is dead by now. */
	buf_printf(to,
		   " [ -e $d/once ] || exit %d; a=%llu; b=%llu; m=%zu; w=%lld; " ALIVE
		   " look() { r=-; o=; e=; { read -r r o e <$d/rc || alive $d/sup ||"
		   " read -r r o e <$d/rc || { r=-1; }; } 2>/dev/null; [ -n \"$r\" ] || r=-;"
		   " set -- $(stat -c %%s $d/out $d/err); x=$((${1:-0} < ${o:-${1:-0}} ? ${1:-0} :"
		   " ${o:-${1:-0}})); y=$((${2:-0} < ${e:-${2:-0}} ? ${2:-0} : ${e:-${2:-0}}));"
		   " x=$((x > a ? x - a : 0)); y=$((y > b ? y - b : 0)); }; look; t=2;"
		   " while [ $r = - ] && ((x + y == 0 && w > 0)); do sleep .0$t; w=$((w - 10 * t - "
		   "5));"
		   " t=$((t < 9 ? t + 1 : 9)); look; done;"
		   " s=0; [ ! -e $d/started ] || s=1;"
		   " i=$((x > m ? m : x)); j=$((y > m ? m : y)); echo $s $r $x $y $i $j;"
		   " c='bs=128K iflag=skip_bytes,count_bytes,fullblock status=none';"
		   " [ $i = 0 ] || dd if=$d/out skip=$a count=$i $c || exit;"
		   " [ $j = 0 ] || dd if=$d/err skip=$b count=$j $c || exit; exit 0",
		   RUN_UNKNOWN, (unsigned long long)out_offset, (unsigned long long)err_offset, max,
		   (long long)wait_ms);
}

/* ---- feeding ---- */

void run_script_feed(struct buf *to, const char *id, const struct run_piece *piece, bool end)
{
	put_run(to, id);
	buf_printf(to,
		   " [ -e $d/once ] || exit %d;"
		   " [ -p $d/bell ] && [ ! -e $d/rc ] && [ ! -e $d/deaf ] || exit %d;",
		   RUN_UNKNOWN, RUN_DEAF);
	if (piece->len) {
		buf_printf(to, " n=; read -r n <$d/at; ((%llu - ${n:-0} <= %d)) || exit %d;",
			   (unsigned long long)piece->offset + piece->len, RUN_INPUT_MAX, RUN_FULL);
		put_piece(to, "in", piece);
	}
	if (end)
		buf_puts(to, " : >|$d/end || exit;");
	/* A bell that was rung and not heard yet is not rung again: it could be full. */
	buf_puts(to, " { read -t 0 -u 9 || printf . >&9; } 9<>$d/bell");
}

/* ---- ending ---- */

/*
 * family PID WITHOUT [all]: f becomes that process and its descendants, but not
 * those in WITHOUT and theirs; with all also who is in the session of that name.
 * hit: they get the signal.
 */
#define FAMILY                                                                                     \
	" family() { local l p k=1 r=$1 a=$3 n=\" $2 \"; local -A P S; f=\" $1 \";"                \
	" for p in /proc/[0-9]*/stat; do { read -r l <$p; } 2>/dev/null || continue;"              \
	" p=${l%% *}; l=${l##*) }; set -- $l; [ $1 = Z ] || { P[$p]=$2; S[$p]=$4; }; done;"        \
	" while [ $k ]; do k=; for p in \"${!P[@]}\"; do"                                          \
	" [[ $f == *\" $p \"* || $n == *\" $p \"* ]] && continue;"                                 \
	" [[ $f == *\" ${P[$p]} \"* || ( $a && ${S[$p]} = $r ) ]] && { f+=\"$p \"; k=1; };"        \
	" done; done; }; hit() { [ -z \"${f// }\" ] || kill -$g $f 2>/dev/null; };"

/*
 * A run in a shell: its children get the signal, the shell SIGUSR2 if it knows
 * what that means (it may have become another program). If there are no
 * children and the run goes on nevertheless it gets the signal, too. So do children that it
 * was just making: bash hears of a signal when they have ended.
 */
#define KILL_IN_SHELL                                                                              \
	" if [ ! -e $d/started ]; then echo $((128 + g)) 0 0 9<>$d/rc.t >&9; mv -f $d/rc.t $d/rc;" \
	" exit 0; fi; for i in {1..100}; do [ ! -e $d/rc ] || exit 0; ! alive $d/sh/shell || "     \
	"break;"                                                                                   \
	" alive $d/sup || exit 0; sleep .01; done; alive $d/sh/shell || exit 0;"                   \
	" read -r c i <$d/sh/shell; w=$(tr -s '\\n' ' ' <$d/before);"                              \
	" kin() { family $c \"$w\"; f=${f/ $c / }; };"                                             \
	" late() { f=; for p in $(cat /proc/$c/task/$c/children 2>/dev/null); do"                  \
	" [[ \" $w $z \" == *\" $p \"* ]] || f+=\" $p\"; done;"                                    \
	" [ ! -e $d/rc ] || exit 0; z+=\"$f \"; hit; };"                                           \
	" while read -r k v; do [ $k != SigCgt: ] || u=$v; done </proc/$c/status; kin;"            \
	" if ((0x${u:-0} & 0x800)); then l=1; kill -USR2 $c; else l=; kill -$g $c; fi"             \
	" 2>/dev/null; hit;"                                                                       \
	" z=$f; for i in {1..100}; do [ ! -e $d/rc ] || exit 0; sleep .02;"                        \
	" if [ $g = 9 ]; then kin; hit; elif [ $l ]; then late; fi; done;"                         \
	" kin; if [ $g = 9 ] || [ -z \"${f// }\" ]; then [ -e $d/rc ] || kill -$g $c; fi;"

#define KILL_ALONE                                                                                 \
	" for i in {1..100}; do [ ! -e $d/rc ] || exit 0; [ ! -s $d/child ] || break;"             \
	" alive $d/sup || exit 0; sleep .01; done; alive $d/child || exit 0; read -r c i "         \
	"<$d/child;"                                                                               \
	" family $c '' all; hit; [ $g = 9 ] || exit 0;"                                            \
	" for i in {1..5}; do family $c '' all; f=${f/ $c / }; [ -n \"${f// }\" ] || break; hit; " \
	"done;"

void run_script_kill(struct buf *to, const char *id, int signal)
{
	put_run(to, id);
	/* In place: a second signal only takes the place of the first. */
	buf_printf(to,
		   " [ -e $d/once ] || exit %d; [ ! -e $d/rc ] || exit 0; g=%d;"
		   " k=$d/killed; [ -e $k ] || k=$d/kill.t; echo $g 9<>$k >&9 || exit;"
		   " [ $k = $d/killed ] || mv -f $k $d/killed || exit; ",
		   RUN_UNKNOWN, signal);
	buf_puts(to, ALIVE FAMILY " if [ -L $d/sh ]; then" KILL_IN_SHELL " else" KILL_ALONE
				  " fi; exit 0");
}

/*
 * A process of its own that was started needs its directory until bash has
 * opened the script, which it has as fd 255 or before it is bash (in the middle of an exec
 * there is no command line). Twice, as somebody may be writing
 * there.
 */
void run_script_drop(struct buf *to, const char *id)
{
	put_run(to, id);
	buf_puts(to, " " ALIVE
		     " late() { local c s; [ -e $d/started ] && [ ! -L $d/sh ] && [ ! -e $d/rc ] &&"
		     " alive $d/sup || return; read -r c s <$d/child || return 0;"
		     " [ ! -e /proc/$c/fd/255 ] || return; s=$(tr '\\0' ' ' </proc/$c/cmdline);"
		     " [[ -z ${s// } || $s == *$d* ]]; };"
		     " for i in {1..100}; do late 2>/dev/null || break; sleep .01; done;"
		     " rm -rf $d || rm -rf $d");
}

/*
 * Whoever makes `once` decides: the start, which is through then (that is what
 * the lock is for) and is ended as others are, or we, and then it finds the bar
 * instead, removes it and ends. If it never comes, or is ended in the middle of that, what is
 * there goes after a while (and who sees to that has left the session when we end: that may
 * be ended then).
 *
 * The directory is moved away first: nobody can put something into it meanwhile.
 */
void run_script_undo(struct buf *to, const char *id, bool adrift)
{
	buf_puts(to, "( ");
	put_run(to, id);
	if (adrift)
		buf_puts(to, LOCK
			 " mkdir -m 700 -p $d && : >|$d/bar || exit;"
			 " if mkdir $d/once 2>/dev/null; then exec 8<&-; r=$(setsid \"$BASH\" -c"
			 " 'exec >/dev/null; for i in {1..50}; do sleep .1; [ -e $1/bar ] || break;"
			 " done; rm -rf $1' threadfs-bar $d </dev/null 2>/dev/null &); exit; fi;"
			 " exec 8<&-;");
	buf_puts(to, " ( ");
	run_script_kill(to, id, SIGKILL);
	buf_puts(to, " ); mv -T $d $d.x; rm -rf $d.x $d ) 2>/dev/null");
}
