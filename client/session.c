/* See session.h. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "jsonw.h"
#include "sandbox_i.h"
#include "url.h"
#include "uuid.h"

void session_name(struct session *s, enum session_kind kind, const char *prefix)
{
	char id[UUID_LEN + 1];

	uuid_make(id);
	s->kind = kind;
	snprintf(s->id, sizeof(s->id), "%s%s", prefix, id);
}

static struct farewell *farewell_to(struct sandbox *sb, enum session_kind kind, const char *id)
{
	bool in_shell = kind == SESSION_SHELL;
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&target, in_shell ? "/v1/shell/sessions/" : "/v1/bash/sessions/");
	if (url_escape(&target, id, strlen(id)) < 0 ||
	    buf_puts(&target, in_shell ? "" : "/close") < 0)
		return NULL;
	return sandbox_add_farewell(sb, in_shell ? "DELETE" : "POST", target.data);
}

void session_begin(struct sandbox *sb, struct session *s)
{
	s->farewell = farewell_to(sb, s->kind, s->id);
}

void session_forget(struct sandbox *sb, struct session *s)
{
	sandbox_drop_farewell(sb, s->farewell);
	*s = (struct session){ 0 };
}

void session_end(struct sandbox *sb, struct session *s)
{
	sandbox_say_farewell(sb, s->farewell);
	*s = (struct session){ 0 };
}

void session_abandon(struct sandbox *sb, struct session *s)
{
	sandbox_insist_farewell(sb, s->farewell);
	*s = (struct session){ 0 };
}

/* A server's idea of a name is to become part of a path. */
static bool is_id(const char *id)
{
	size_t len = strlen(id);

	return len <= SESSION_ID_MAX && name_is_component(id, len);
}

void session_end_id(struct sandbox *sb, enum session_kind kind, const char *id)
{
	if (is_id(id))
		sandbox_say_farewell(sb, farewell_to(sb, kind, id));
}

void session_ask(const struct session *s, struct exchange *x, struct op *op, const char *dir,
		 void (*done)(struct exchange *, int err))
{
	struct jw w;

	exchange_release(x);
	exchange_init(x, op, "POST", "/v1/shell/sessions/create", done);
	x->idempotent = true;
	jw_init(&w, &x->body);
	jw_obj(&w);
	jw_kstr(&w, "id", s->id);
	if (dir)
		jw_kstr(&w, "exec_dir", dir);
	jw_kint(&w, "no_change_timeout", SESSION_SILENCE_S);
	jw_obj_end(&w);
}

/* Servers before 1.0.0.126 give a session an id of their own. */
int session_adopt(struct sandbox *sb, struct session *s, const cJSON *data)
{
	const char *id = answer_str(data, "session_id");

	if (id && strcmp(id, s->id) != 0) {
		if (!is_id(id))
			return -EBADMSG;
		sandbox_drop_farewell(sb, s->farewell);
		memcpy(s->id, id, strlen(id) + 1);
		session_begin(sb, s);
	}
	s->made = true;
	return 0;
}
