/* Between inject.c, which decides, and inject_calls.c, which has the calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum inject_kind { INJECT_MEMORY, INJECT_DESCRIPTOR, INJECT_FILE, INJECT_SOCKET, INJECT_PROCESS };

/* Whether this call is the one; then errno is one of the errors. */
bool inject_fails(const char *name, enum inject_kind kind, const int *errors, size_t n);
/* Memory of libcurl and cJSON comes from here, too. */
void inject_hook_libraries(void);
