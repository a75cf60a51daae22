/*
 * Commands whose outcome a test makes up: a rule for the proxy that answers the
 * exec channel of client/ in the words of either kind of server. What is asserted
 * here is asserted on the main thread only.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base64.h"
#include "fixture.h"
#include "jsonw.h"

struct fake {
	const char *out;
	size_t out_len; /* 0: strlen(out) */
	const char *err;
	int exit_code;
	bool bytes;  /* the command's output is armoured: listings and links */
	bool spills; /* so that a shell expects to hear where the output is: listings */
};

/* The word that the shell's wrapper puts between < and >. */
static inline void fake_mark(const char *body, char *to, size_t size)
{
	static const char before[] = "\\\\n<%s>\\\\n' ";
	const char *mark = strstr(body, before);

	snprintf(to, size, "%.10s", mark ? mark + strlen(before) : "");
}

static inline void fake_shell(const struct fake *k, const char *body, struct buf *text)
{
	struct buf bytes CLEANUP_BUF = BUF_INIT(0);
	char mark[16];

	fake_mark(body, mark, sizeof(mark));
	if (k->spills)
		buf_putc(&bytes, 'I');
	buf_append(&bytes, k->out ?: "", k->out_len ?: strlen(k->out ?: ""));
	buf_putc(&bytes, '\0');
	buf_printf(&bytes, "%s\n%d", k->err ?: "", k->exit_code);
	buf_printf(text, "\n<%s>\n", mark);
	base64_encode(text, bytes.data, bytes.len);
	buf_printf(text, "\n<%s>\n", mark);
}

static inline void fake_bash(const struct fake *k, struct buf *text)
{
	size_t len = k->out_len ?: strlen(k->out ?: "");

	if (!k->bytes) {
		buf_append(text, k->out ?: "", len);
		return;
	}
	buf_putc(text, 'B');
	base64_encode(text, k->out ?: "", len);
	buf_putc(text, 'E');
}

static inline int fake_handler(void *ctx, const struct rogue_request *request,
			       struct rogue_reply *reply)
{
	const struct fake *k = ctx;
	bool shell = strncmp(request->target, "/v1/shell/", 10) == 0;
	struct buf text CLEANUP_BUF = BUF_INIT(0), body = BUF_INIT(0);
	struct jw w;

	if (shell)
		fake_shell(k, request->body, &text);
	else
		fake_bash(k, &text);
	jw_init(&w, &body);
	jw_obj(&w);
	jw_kbool(&w, "success", true);
	jw_key(&w, "data");
	jw_obj(&w);
	jw_kstr(&w, "status", "completed");
	jw_kstrn(&w, shell ? "output" : "stdout", text.data ?: "", text.len);
	if (!shell)
		jw_kstr(&w, "stderr", k->err);
	jw_kint(&w, "exit_code", shell ? 0 : k->exit_code);
	jw_obj_end(&w);
	jw_obj_end(&w);
	reply->body = body.data;
	reply->body_len = body.len;
	reply->owned = body.data;
	return 0;
}

/* Where commands of the exec channel go, as a path of a rule. */
static inline const char *fake_route(const struct fixture *f)
{
	return f->has_bash ? "/v1/bash/exec$" : "/v1/shell/exec$";
}

/* The next so many commands end so (0: all); k must live as long. */
static inline void fake_command(struct fixture *f, const struct fake *k, unsigned times)
{
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = fake_route(f),
				    .times = times,
				    .action = ROGUE_ANSWER,
				    .handler = fake_handler,
				    .ctx = (void *)(uintptr_t)k,
			    });
}
