/* What the emulation's files share. One lock guards all state; a product runs outside it, under its cores'
 * locks. */
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "rknn.h"

/* An allocation as the processor sees it and as the NPU does: they differ until they are synced. */
typedef struct {
  uint8_t *host, *device;
  uint64_t size;
  int fd, slices, domain;
  rknn_context owner;
} buffer;

/* What a rknn_tensor_mem's priv_data points to. */
typedef struct memory {
  rknn_tensor_mem* given;
  buffer* of;
  uint64_t offset, size;
  rknn_context owner;
  bool slice;
  struct memory* next;
} memory;

typedef struct {
  bool live;
  uint32_t generation;
  pthread_t thread;
  rknn_matmul_info info;
  rknn_matmul_io_attr attr;
  rknn_matmul_shape shapes[16];
  int n_shapes, core_mask;
  memory* io[3];      /* A, B, C */
  uint8_t* copied[2]; /* A, B as they were when they were set, in the normal layouts */
} context;

extern pthread_mutex_t lock;

/* A broken rule: counted, and told by rknn_emu_violations. Returns `code`. */
int violation(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/* The live context of a handle that this thread made; NULL, with a violation, for any other. */
context* find(rknn_context handle, const char* what);
memory* find_memory(const rknn_tensor_mem* given, const char* what);
void drop_memories(rknn_context handle);
void drop_all_memories(void);
void unbind(const memory* m);
int live_contexts(void);
long memory_count(const char* what);

/* faults.c */
typedef enum {
  FAULT_FAIL,
  FAULT_TIMEOUT,
  FAULT_ZEROS,
  FAULT_NOTHING,
  FAULT_WRONG,
  FAULT_HANG,
  FAULT_ALLOC,
  FAULT_CREATE,
  FAULT_LAYOUT,
  FAULTS
} fault;
bool strikes(fault kind,
             int* code); /* whether this call, counted for its kind, is one that a fault was asked for */
long limit(const char* variable, long otherwise);
const char* text(const char* variable, const char* otherwise);
int driver_number(void);
void burn(const rknn_matmul_info* info, double begin);
double now(void);

/* layout.c */
void describe(const rknn_matmul_info* info, const rknn_matmul_shape* shape, rknn_matmul_io_attr* attr);
void multiply(const rknn_matmul_info* info, const uint8_t* a, const uint8_t* b, uint8_t* c);
