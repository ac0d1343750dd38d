/* Faults on demand, limits, and the time that a product would take.
 *
 * RKNN_EMU_FAULT or rknn_emu_fault("KIND@N", ...): KIND at the N-th call from now on; N+ and every one after;
 * several with commas. At rknn_matmul_run: fail (=CODE), timeout, zeros (success, C all zero), nothing
 * (success, C as it was), wrong (every sum off by one), hang (returns after RKNN_EMU_HANG seconds). At
 * rknn_create_mem: alloc. At rknn_matmul_create: create, layout (describes A in another layout).
 * RKNN_EMU_COST or rknn_emu_cost("FLOOR_US,GOPS,GBPS"): each product takes so long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulator.h"

static const char* const names[FAULTS] = {"fail", "timeout", "zeros",  "nothing", "wrong",
                                          "hang", "alloc",   "create", "layout"};
static struct {
  long at, code, calls;
  bool on, after;
} plans[FAULTS];
static double floor_us, gops, gbps;
static bool read_environment;

EXPORT int rknn_emu_fault(const char* spec) {
  char copy[512], *rest = copy;
  memset(plans, 0, sizeof plans);
  read_environment = true;
  snprintf(copy, sizeof copy, "%s", spec ? spec : "");
  for (char* one; (one = strtok_r(rest, ",", &rest));) {
    char kind[32];
    long at;
    if (sscanf(one, "%31[a-z]", kind) != 1 || !strchr(one, '@') ||
        (at = strtol(strchr(one, '@') + 1, NULL, 10)) < 1)
      return PARAM;
    int k = 0;
    while (k < FAULTS && strcmp(names[k], kind)) ++k;
    if (k == FAULTS) return PARAM;
    plans[k].on = true;
    plans[k].at = at;
    plans[k].after = one[strlen(one) - 1] == '+';
    plans[k].code = strchr(one, '=') ? strtol(strchr(one, '=') + 1, NULL, 10) : FAIL;
  }
  return OK;
}

EXPORT int rknn_emu_cost(const char* spec) {
  floor_us = gops = gbps = 0;
  return !spec || !*spec || sscanf(spec, "%lf,%lf,%lf", &floor_us, &gops, &gbps) == 3 ? OK : PARAM;
}

static void environment(void) {
  if (read_environment) return;
  read_environment = true;
  rknn_emu_fault(getenv("RKNN_EMU_FAULT"));
  rknn_emu_cost(getenv("RKNN_EMU_COST"));
}

bool strikes(fault kind, int* code) {
  environment();
  if (!plans[kind].on) return false;
  const long call = ++plans[kind].calls;
  if (code) *code = (int)plans[kind].code;
  return call == plans[kind].at || (plans[kind].after && call > plans[kind].at);
}

long limit(const char* variable, long otherwise) {
  const char* value = getenv(variable);
  return value && *value ? strtol(value, NULL, 10) : otherwise;
}

const char* text(const char* variable, const char* otherwise) {
  const char* value = getenv(variable);
  return value && *value ? value : otherwise;
}

int driver_number(void) {
  int a = 0, b = 0, c = 0;
  sscanf(text("RKNN_EMU_DRIVER", "0.9.8"), "%d.%d.%d", &a, &b, &c);
  return a * 10000 + b * 100 + c;
}

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void burn(const rknn_matmul_info* i, double begin) {
  environment();
  if (floor_us <= 0) return;
  const double m = i->M, k = i->K, n = i->N, size = i->type == I8_I32 ? 1 : 2;
  double left = begin - now() + 1e-6 * floor_us + 2e-9 * m * k * n / gops +
                1e-9 * (size * (m * k + k * n) + 4 * m * n) / gbps;
  if (left <= 0) return;
  struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
  nanosleep(&t, NULL);
}
