/* Contexts and runs, with the rules that a board enforces or punishes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulator.h"

#define MOST 1024
enum { CORES = 3, MOST_K = 4096, MOST_N = 4096, SHAKY_K = 3072 };

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cores[CORES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                       PTHREAD_MUTEX_INITIALIZER};
static context contexts[MOST];
static long violations, runs, running, overlap, runs_on[CORES], most_contexts;
static char last_violation[256];

int violation(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_violation, sizeof last_violation, format, arguments);
  va_end(arguments);
  ++violations;
  if (getenv("RKNN_EMU_VERBOSE")) fprintf(stderr, "rknn emulation: %s\n", last_violation);
  return code;
}

EXPORT long rknn_emu_violations(char* out, int size) {
  pthread_mutex_lock(&lock);
  if (out && size > 0) snprintf(out, (size_t)size, "%s", last_violation);
  const long count = violations;
  pthread_mutex_unlock(&lock);
  return count;
}

/* Of: contexts, most_contexts, allocations, slices, bytes, runs, runs0, runs1, runs2, overlap (most runs at
 * once). */
EXPORT long rknn_emu_count(const char* what) {
  pthread_mutex_lock(&lock);
  long count = memory_count(what);
  if (!strcmp(what, "contexts")) count = live_contexts();
  if (!strcmp(what, "most_contexts")) count = most_contexts;
  if (!strcmp(what, "runs")) count = runs;
  if (!strcmp(what, "overlap")) count = overlap;
  if (!strncmp(what, "runs", 4) && what[4] >= '0' && what[4] < '0' + CORES) count = runs_on[what[4] - '0'];
  pthread_mutex_unlock(&lock);
  return count;
}

/* Counts from zero, and nothing left of what was made. Nobody may be inside the library. */
EXPORT void rknn_emu_reset(void) {
  pthread_mutex_lock(&lock);
  drop_all_memories();
  for (int i = 0; i < MOST; ++i) {
    contexts[i].live = false;
    for (int j = 0; j < 2; ++j) {
      free(contexts[i].copied[j]);
      contexts[i].copied[j] = NULL;
    }
  }
  violations = runs = overlap = most_contexts = 0;
  memset(runs_on, 0, sizeof runs_on);
  last_violation[0] = 0;
  pthread_mutex_unlock(&lock);
}

int live_contexts(void) {
  int count = 0;
  for (int i = 0; i < MOST; ++i) count += contexts[i].live;
  return count;
}

context* find(rknn_context handle, const char* what) {
  const uint32_t index = (uint32_t)handle - 1;
  context* c = index < MOST ? &contexts[index] : NULL;
  if (!c || !c->live || c->generation != handle >> 32) {
    violation(CONTEXT, "%s: no such context", what);
    return NULL;
  }
  if (!pthread_equal(c->thread, pthread_self())) {
    violation(CONTEXT, "%s: a context used by two threads", what);
    return NULL;
  }
  return c;
}

void unbind(const memory* m) {
  for (int i = 0; i < MOST; ++i)
    for (int j = 0; j < 3; ++j)
      if (contexts[i].io[j] == m) contexts[i].io[j] = NULL;
}

static int refuse(const rknn_matmul_info* info, const rknn_matmul_shape* s) {
  const int half = info->type == F16_F32;
  if (info->type != I8_I32 && !half) return violation(PARAM, "matmul type %d isn't emulated", info->type);
  if (s->M < 1 || s->K < 32 || s->K % 32) return violation(PARAM, "K = %d: a multiple of 32 is needed", s->K);
  if (s->N < 1 || s->N % (half ? 16 : 32))
    return violation(PARAM, "N = %d: a multiple of %d is needed", s->N, half ? 16 : 32);
  if (s->K > MOST_K || s->N > MOST_N)
    return violation(PARAM, "K = %d, N = %d: at most 4096 each", s->K, s->N);
  return OK;
}

static int create(rknn_context* handle, const rknn_matmul_info* info, int n, const rknn_matmul_shape* shapes,
                  rknn_matmul_io_attr* attr) {
  if (!handle || !info || !attr || n < 1 || n > 16)
    return violation(PARAM, "rknn_matmul_create without its arguments");
  for (int i = 0; i < n; ++i)
    if (refuse(info, &shapes[i])) return PARAM;
  for (int i = 0; i < 34; ++i)
    if (info->reserved[i]) return violation(PARAM, "rknn_matmul_info wasn't zeroed");
  if (info->B_quant_type || info->AC_quant_type || info->group_size)
    return violation(PARAM, "quantization types other than 0");
  if (info->AC_layout < NORM || info->AC_layout > NATIVE || info->B_layout < NORM || info->B_layout > TP_NORM)
    return violation(PARAM, "layouts %d, %d", info->AC_layout, info->B_layout);
  if (info->iommu_domain_id && driver_number() < 908) return violation(PARAM, "domains need driver 0.9.8");
  if (live_contexts() >= limit("RKNN_EMU_CONTEXTS", 150))
    return violation(MALLOC, "more than %d contexts", live_contexts());
  if (strikes(FAULT_CREATE, NULL)) return MALLOC;
  int free_at = 0;
  while (contexts[free_at].live) ++free_at;
  context* c = &contexts[free_at];
  const uint32_t generation = c->generation + 1;
  *c = (context){
      .live = true, .generation = generation, .thread = pthread_self(), .info = *info, .n_shapes = n};
  memcpy(c->shapes, shapes, (size_t)n * sizeof *shapes);
  c->info.M = shapes[0].M;
  c->info.K = shapes[0].K;
  c->info.N = shapes[0].N;
  for (int i = 0; i < n; ++i) describe(info, &shapes[i], &attr[i]);
  describe(info, &shapes[0], &c->attr);
  if (strikes(FAULT_LAYOUT, NULL)) attr->A.dims[0] /= 2, attr->A.dims[2] *= 2;
  *handle = (rknn_context)generation << 32 | (uint32_t)(free_at + 1);
  if (live_contexts() > most_contexts) most_contexts = live_contexts();
  return OK;
}

EXPORT int rknn_matmul_create(rknn_context* handle, rknn_matmul_info* info, rknn_matmul_io_attr* attr) {
  pthread_mutex_lock(&lock);
  const rknn_matmul_shape shape =
      info ? (rknn_matmul_shape){info->M, info->K, info->N} : (rknn_matmul_shape){0};
  const int code = create(handle, info, 1, &shape, attr);
  pthread_mutex_unlock(&lock);
  return code;
}

EXPORT int rknn_matmul_create_dynamic_shape(rknn_context* handle, rknn_matmul_info* info, int n,
                                            rknn_matmul_shape* shapes, rknn_matmul_io_attr* attr) {
  pthread_mutex_lock(&lock);
  const int code = create(handle, info, n, shapes, attr);
  pthread_mutex_unlock(&lock);
  return code;
}

EXPORT int rknn_matmul_set_dynamic_shape(rknn_context handle, rknn_matmul_shape* s) {
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_matmul_set_dynamic_shape");
  int code = c ? PARAM : CONTEXT;
  for (int i = 0; c && i < c->n_shapes; ++i)
    if (!memcmp(s, &c->shapes[i], sizeof *s)) {
      c->info.M = s->M;
      c->info.K = s->K;
      c->info.N = s->N;
      describe(&c->info, s, &c->attr);
      memset(c->io, 0, sizeof c->io);
      code = OK;
    }
  if (c && code) violation(code, "a shape that the context wasn't made with");
  pthread_mutex_unlock(&lock);
  return code;
}

EXPORT int rknn_matmul_set_core_mask(rknn_context handle, int mask) {
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_matmul_set_core_mask");
  int code = c ? OK : CONTEXT;
  if (c && mask != 0 && mask != 1 && mask != 2 && mask != 3 && mask != 4 && mask != 7)
    code = violation(PARAM, "core mask %d", mask);
  if (c && code == OK) c->core_mask = mask;
  pthread_mutex_unlock(&lock);
  return code;
}

static int bind(context* c, memory* m, const rknn_matmul_tensor_attr* attr) {
  const rknn_matmul_tensor_attr* known[3] = {&c->attr.A, &c->attr.B, &c->attr.C};
  for (int i = 0; i < 3; ++i) {
    if (memcmp(attr, known[i], sizeof *attr)) continue;
    if (m->size < attr->size)
      return violation(PARAM, "%s: %lu bytes for %u", attr->name, (unsigned long)m->size, attr->size);
    if (m->of->domain != c->info.iommu_domain_id)
      return violation(PARAM, "%s: memory of another domain", attr->name);
    c->io[i] = m;
    const int layout = i == 1 ? c->info.B_layout : c->info.AC_layout;
    if (i < 2 && layout != NATIVE) {
      c->copied[i] = realloc(c->copied[i], attr->size);
      memcpy(c->copied[i], m->of->host + m->offset, attr->size);
    }
    return OK;
  }
  return violation(PARAM, "an attr that isn't the context's");
}

EXPORT int rknn_matmul_set_io_mem(rknn_context handle, rknn_tensor_mem* given,
                                  rknn_matmul_tensor_attr* attr) {
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_matmul_set_io_mem");
  memory* m = c ? find_memory(given, "rknn_matmul_set_io_mem") : NULL;
  const int code = !c ? CONTEXT : !m ? PARAM : bind(c, m, attr);
  pthread_mutex_unlock(&lock);
  return code;
}

static int used_core(const context* c, int core) {
  return c->core_mask ? c->core_mask >> core & 1 : core == 0;
}

static void compute(const context* c, fault what) {
  const uint8_t* in[2];
  for (int i = 0; i < 2; ++i) {
    const int layout = i == 1 ? c->info.B_layout : c->info.AC_layout;
    in[i] = layout == NATIVE ? c->io[i]->of->device + c->io[i]->offset : c->copied[i];
  }
  const memory* out = c->io[2];
  uint8_t* sums = out->of->device + out->offset;
  if (what == FAULT_ZEROS)
    memset(sums, 0, c->attr.C.size);
  else if (what != FAULT_NOTHING)
    multiply(&c->info, in[0], in[1], sums);
  if (what == FAULT_WRONG)
    for (uint32_t i = 0; i < c->attr.C.size / 4; ++i) {
      if (c->info.type == I8_I32)
        ++((int32_t*)sums)[i];
      else
        ((float*)sums)[i] += 1e6f;
    }
  memset(out->of->host + out->offset, 0xA5, c->attr.C.size);
}

EXPORT int rknn_matmul_run(rknn_context handle) {
  const double begin = now();
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_matmul_run");
  int code = c ? OK : CONTEXT, asked = FAIL;
  if (c && (!c->io[0] || !c->io[1])) code = violation(INPUT, "run without A or B");
  if (c && !code && !c->io[2]) code = violation(OUTPUT, "run without C");
  if (c && !code && c->info.K > SHAKY_K && c->info.M > 4)
    code = violation(FAIL, "K = %d with M > 4", c->info.K);
  fault what = FAULTS;
  for (fault f = FAULT_FAIL; !code && f <= FAULT_HANG; ++f)
    if (strikes(f, f == FAULT_FAIL ? &asked : NULL)) what = f;
  if (!code) {
    ++runs;
    for (int i = 0; i < CORES; ++i) runs_on[i] += used_core(c, i);
    if (++running > overlap) overlap = running;
  }
  pthread_mutex_unlock(&lock);
  if (code) return code;

  for (int i = 0; i < CORES; ++i)
    if (used_core(c, i)) pthread_mutex_lock(&cores[i]);
  if (what == FAULT_HANG) {
    struct timespec t = {limit("RKNN_EMU_HANG", 2), 0};
    nanosleep(&t, NULL);
  }
  if (what != FAULT_FAIL && what != FAULT_TIMEOUT) {
    compute(c, what);
    burn(&c->info, begin);
  }
  for (int i = CORES - 1; i >= 0; --i)
    if (used_core(c, i)) pthread_mutex_unlock(&cores[i]);
  pthread_mutex_lock(&lock);
  --running;
  pthread_mutex_unlock(&lock);
  return what == FAULT_FAIL ? asked : what == FAULT_TIMEOUT ? TIMEOUT : OK;
}

EXPORT int rknn_matmul_destroy(rknn_context handle) {
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_matmul_destroy");
  if (c) {
    drop_memories(handle);
    free(c->copied[0]);
    free(c->copied[1]);
    memset(c->io, 0, sizeof c->io);
    memset(c->copied, 0, sizeof c->copied);
    c->live = false;
  }
  pthread_mutex_unlock(&lock);
  return c ? OK : CONTEXT;
}

EXPORT int rknn_query(rknn_context handle, int command, void* out, uint32_t size) {
  pthread_mutex_lock(&lock);
  int code = find(handle, "rknn_query") ? OK : CONTEXT;
  if (!code && (command != QUERY_SDK_VERSION || size != sizeof(rknn_sdk_version)))
    code = violation(PARAM, "query %d of %u bytes", command, size);
  if (!code) {
    rknn_sdk_version* version = out;
    memset(version, 0, sizeof *version);
    snprintf(version->api, sizeof version->api, "%s (emulated)", text("RKNN_EMU_VERSION", "2.3.2"));
    snprintf(version->driver, sizeof version->driver, "%s", text("RKNN_EMU_DRIVER", "0.9.8"));
  }
  pthread_mutex_unlock(&lock);
  return code;
}
