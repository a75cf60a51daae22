/* What of our environment goes to whom we start. */
#pragma once

enum { ENVIRONMENT_MAX = 64 };

/*
 * What a program and its loader may need. Everything else may be a secret: keys, tokens, proxies
 * with passwords. Ends with NULL; it points into our own environment.
 */
void environment_choose(char *env[ENVIRONMENT_MAX]);
