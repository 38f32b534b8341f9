/* Preloaded into one process: tells every act by which it changes the world, before it, and cuts the process off there.
 *
 *   CUT_ROOTS  folders, colon-separated: only files below them count
 *   CUT_LOG    file that gets a line for each act: KIND, tab, PATH or command, and for a write, tab, the bytes in hex
 *   CUT_AT     LABEL, i.e. KIND space PATH-or-command as in the log, digits and hex numbers as '#'
 *   CUT_TURN   at which occurrence of that label, 1 the first
 *   CUT_HOW    kill: SIGKILL before the act; orphan: SIGKILL, and a child that was to be started runs on; or the number of
 *              an errno: this act and every later one below the same root fails with it
 *   CUT_MARK   file that is made when it comes to that act
 *
 * Children never get it: the variables are taken away as soon as they are read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static pid_t ours;
static int turn = 1, failing_with, seen;
static char log_name[512], mark_name[512], roots[512], at[1024], how[32], failing_below[256];

#define REAL(result, name, ...) static result (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)

static void take(const char *name, char *into, size_t size) {
  const char *value = getenv(name);
  if (value) snprintf(into, size, "%s", value);
  unsetenv(name);
}

__attribute__((constructor)) static void begin(void) {
  char text[512] = "";
  ours = getpid();
  take("CUT_ROOTS", roots, sizeof roots);
  take("CUT_AT", at, sizeof at);
  take("CUT_HOW", how, sizeof how);
  take("CUT_TURN", text, sizeof text);
  if (*text) turn = atoi(text);
  take("CUT_LOG", log_name, sizeof log_name);
  take("CUT_MARK", mark_name, sizeof mark_name);
  unsetenv("LD_PRELOAD");
}

/* The root that a path lies below; NULL: none, and the act is none of ours. */
static const char *root_of(const char *path, char *into, size_t size) {
  char all[512], *rest = NULL;
  snprintf(all, sizeof all, "%s", roots);
  for (char *one = strtok_r(all, ":", &rest); one; one = strtok_r(NULL, ":", &rest))
    if (!strncmp(path, one, strlen(one))) {
      snprintf(into, size, "%s", one);
      return into;
    }
  return NULL;
}

/* What differs from run to run is no part of a label. */
static void plain(char *text) {
  char *to = text;
  for (char *from = text; *from;) {
    size_t hex = strspn(from, "0123456789abcdef"), digits = strspn(from, "0123456789");
    size_t skip = hex >= 8 ? hex : digits;
    if (skip) { *to++ = '#'; from += skip; } else *to++ = *from++;
  }
  *to = 0;
}

static void note(const char *kind, const char *what, const void *bytes, size_t size) {
  if (!*log_name) return;
  /* Opened each time: a child closes every file before it starts its program. */
  int file = syscall(SYS_openat, AT_FDCWD, log_name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  size_t room = strlen(kind) + strlen(what) + 2 * size + 4;
  char *line = malloc(room), *end = line + sprintf(line, "%s\t%s", kind, what);
  if (bytes) {
    *end++ = '\t';
    for (size_t i = 0; i < size; i++) end += sprintf(end, "%02x", ((const unsigned char *)bytes)[i]);
  }
  *end++ = '\n';
  syscall(SYS_write, file, line, end - line);
  syscall(SYS_close, file);
  free(line);
}

static void mark(void) {
  if (*mark_name) syscall(SYS_close, (int)syscall(SYS_openat, AT_FDCWD, mark_name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

static void cut(void) { syscall(SYS_kill, ours, SIGKILL); }

/* An act is about to happen. Returns the errno that it shall fail with, 0: it may be. */
static int act(const char *kind, const char *what, const void *bytes, size_t size) {
  char label[1024], root[256] = "";
  root_of(what, root, sizeof root);
  note(kind, what, bytes, size);
  if (failing_with && *root && !strcmp(root, failing_below)) return failing_with;
  snprintf(label, sizeof label, "%s %s", kind, what);
  plain(label);
  if (!*at || strcmp(label, at) || ++seen != turn) return 0;
  mark();
  if (!strcmp(how, "kill") || !strcmp(how, "orphan")) { cut(); return 0; }
  failing_with = atoi(how);
  snprintf(failing_below, sizeof failing_below, "%s", root);
  return failing_with;
}

static int counts(const char *path) {
  char root[256];
  return path && getpid() == ours && root_of(path, root, sizeof root) != NULL;
}

static int of_file(int file, char *into, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, into, size - 1);
  if (length < 0) return 0;
  into[length] = 0;
  return counts(into);
}

#define REFUSE(error) do { int refused = error; if (refused) { errno = refused; return -1; } } while (0)

static int opens(const char *name, int flags) {
  int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  return writes && counts(name) ? act("open", name, NULL, 0) : 0;
}

#define OPEN(NAME) \
  int NAME(const char *name, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
    REAL(int, NAME, const char *, int, ...); \
    REFUSE(opens(name, flags)); \
    return real(name, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define WRITE(NAME, EXTRA, ARGUMENT) \
  ssize_t NAME(int file, const void *bytes, size_t size EXTRA) { \
    char path[512]; \
    REAL(ssize_t, NAME, int, const void *, size_t EXTRA); \
    if (of_file(file, path, sizeof path)) REFUSE(act("write", path, bytes, size)); \
    return real(file, bytes, size ARGUMENT); \
  }
#define COMMA ,
WRITE(write, , )
WRITE(pwrite, COMMA off_t offset, COMMA offset)
WRITE(pwrite64, COMMA off64_t offset, COMMA offset)

#define ON_FILE(NAME, KIND, EXTRA, ARGUMENT) \
  int NAME(int file EXTRA) { \
    char path[512]; \
    REAL(int, NAME, int EXTRA); \
    if (of_file(file, path, sizeof path)) REFUSE(act(KIND, path, NULL, 0)); \
    return real(file ARGUMENT); \
  }
ON_FILE(fsync, "fsync", , )
ON_FILE(fchmod, "chmod", COMMA mode_t mode, COMMA mode)
ON_FILE(ftruncate, "truncate", COMMA off_t size, COMMA size)
ON_FILE(ftruncate64, "truncate", COMMA off64_t size, COMMA size)

#define ON_NAME(NAME, KIND, EXTRA, ARGUMENT) \
  int NAME(const char *name EXTRA) { \
    REAL(int, NAME, const char * EXTRA); \
    if (counts(name)) REFUSE(act(KIND, name, NULL, 0)); \
    return real(name ARGUMENT); \
  }
ON_NAME(unlink, "unlink", , )
ON_NAME(rmdir, "rmdir", , )
ON_NAME(mkdir, "mkdir", COMMA mode_t mode, COMMA mode)
ON_NAME(chmod, "chmod", COMMA mode_t mode, COMMA mode)

/* Without the name of its folder where it goes by one: then the folder is where that file leads. */
int unlinkat(int folder, const char *name, int flags) {
  char path[1024];
  REAL(int, unlinkat, int, const char *, int);
  if (folder != AT_FDCWD && *name != '/' && of_file(folder, path, 512)) {
    strncat(path, "/", 2);
    strncat(path, name, 255);
    REFUSE(act(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path, NULL, 0));
  }
  return real(folder, name, flags);
}

int rename(const char *from, const char *to) {
  REAL(int, rename, const char *, const char *);
  if (counts(to)) REFUSE(act("rename", to, from, strlen(from)));
  return real(from, to);
}

int kill(pid_t pid, int number) {
  REAL(int, kill, pid_t, int);
  if (getpid() == ours && number) act("kill", "signal", NULL, 0);
  return real(pid, number);
}

/* In the child, between fork and exec: our own is its parent. */
int execve(const char *name, char *const argv[], char *const env[]) {
  REAL(int, execve, const char *, char *const *, char *const *);
  /* A search along PATH tries every folder. */
  if (getppid() == ours && !access(name, X_OK)) {
    char words[900] = "";
    const char *last = strrchr(name, '/');
    snprintf(words, sizeof words, "%s", last ? last + 1 : name);
    for (int i = 1; argv[i] && i < 6; i++) {
      /* A program text is known by its beginning. */
      size_t room = sizeof words - strlen(words) - 1;
      strncat(words, " ", room);
      strncat(words, argv[i], room > 40 ? 40 : room - 1);
    }
    for (char *c = words; *c; c++) if (*c == '\n' || *c == '\t') *c = ' ';
    act("start", words, NULL, 0);
    if (getppid() != ours && strcmp(how, "orphan")) _exit(127);
  }
  return real(name, argv, env);
}
