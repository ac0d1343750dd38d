/* Allocations and slices of them. Each allocation is a memfd, mapped for the processor; the NPU's view is
 * apart. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"

static memory* memories;
static long allocations, slices;
static uint64_t mapped;

static rknn_tensor_mem* hand_out(memory m) {
  memory* kept = malloc(sizeof *kept);
  rknn_tensor_mem* given = calloc(1, sizeof *given);
  *kept = m;
  kept->given = given;
  kept->next = memories;
  memories = kept;
  *given = (rknn_tensor_mem){m.of->host + m.offset, 0,   m.of->fd, (int32_t)m.offset, (uint32_t)m.size,
                             m.slice ? 2 : 1,       kept};
  return given;
}

static rknn_tensor_mem* allocate(rknn_context handle, uint64_t size) {
  context* c = find(handle, "rknn_create_mem");
  if (!c || size == 0) return NULL;
  if (strikes(FAULT_ALLOC, NULL)) return NULL;
  if (allocations >= limit("RKNN_EMU_DESCRIPTORS", 256)) {
    violation(MALLOC, "more than %ld allocations, each a descriptor", allocations);
    return NULL;
  }
  const uint64_t pages = (size + 4095) / 4096 * 4096;
  if (mapped + pages > (uint64_t)limit("RKNN_EMU_ADDRESS_SPACE", 1L << 32)) {
    violation(MALLOC, "the NPU's address space is full");
    return NULL;
  }
  buffer* b = calloc(1, sizeof *b);
  b->fd = memfd_create("rknn", MFD_CLOEXEC);
  b->size = size;
  b->domain = c->info.iommu_domain_id;
  b->owner = handle;
  if (b->fd < 0 || ftruncate(b->fd, (off_t)pages) != 0) return NULL;
  b->host = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
  b->device = malloc(pages);
  memset(b->host, 0xA5, pages);
  memset(b->device, 0x5A, pages);
  ++allocations;
  mapped += pages;
  return hand_out((memory){NULL, b, 0, size, handle, false, NULL});
}

EXPORT rknn_tensor_mem* rknn_create_mem(rknn_context handle, uint32_t size) {
  pthread_mutex_lock(&lock);
  rknn_tensor_mem* given = allocate(handle, size);
  pthread_mutex_unlock(&lock);
  return given;
}

EXPORT rknn_tensor_mem* rknn_create_mem2(rknn_context handle, uint64_t size, uint64_t flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  rknn_tensor_mem* given = allocate(handle, size);
  pthread_mutex_unlock(&lock);
  return given;
}

EXPORT rknn_tensor_mem* rknn_create_mem_from_fd(rknn_context handle, int32_t fd, void* virt, uint32_t size,
                                                int32_t offset) {
  rknn_tensor_mem* given = NULL;
  pthread_mutex_lock(&lock);
  context* c = find(handle, "rknn_create_mem_from_fd");
  buffer* b = NULL;
  for (memory* m = memories; m; m = m->next)
    if (!m->slice && m->of->fd == fd) b = m->of;
  if (!c)
    ;
  else if (!b || b->host != virt)
    violation(PARAM, "a slice needs a buffer's descriptor and its first address");
  else if (offset < 0 || offset % 64 || (uint64_t)offset + size > b->size || size == 0)
    violation(PARAM, "a slice of %u bytes at %d of %lu", size, offset, (unsigned long)b->size);
  else if (b->domain != c->info.iommu_domain_id)
    violation(PARAM, "a slice in another domain than its buffer");
  else {
    ++b->slices;
    ++slices;
    given = hand_out((memory){NULL, b, (uint64_t)offset, size, handle, true, NULL});
  }
  pthread_mutex_unlock(&lock);
  return given;
}

memory* find_memory(const rknn_tensor_mem* given, const char* what) {
  for (memory* m = memories; m; m = m->next)
    if (m->given == given) return m;
  violation(PARAM, "%s: no such memory", what);
  return NULL;
}

static void release(memory* m) {
  memory** link = &memories;
  while (*link != m) link = &(*link)->next;
  *link = m->next;
  unbind(m);
  buffer* b = m->of;
  if (m->slice) {
    --b->slices;
    --slices;
  } else {
    const uint64_t pages = (b->size + 4095) / 4096 * 4096;
    munmap(b->host, pages);
    close(b->fd);
    free(b->device);
    free(b);
    --allocations;
    mapped -= pages;
  }
  free(m->given);
  free(m);
}

EXPORT int rknn_destroy_mem(rknn_context handle, rknn_tensor_mem* given) {
  pthread_mutex_lock(&lock);
  int code = find(handle, "rknn_destroy_mem") ? OK : CONTEXT;
  memory* m = code == OK ? find_memory(given, "rknn_destroy_mem") : NULL;
  if (code == OK && !m)
    code = PARAM;
  else if (m && m->owner != handle)
    code = violation(PARAM, "memory destroyed through another context than it was made with");
  else if (m && !m->slice && m->of->slices)
    code = violation(PARAM, "a buffer destroyed before its %d slices", m->of->slices);
  else if (m)
    release(m);
  pthread_mutex_unlock(&lock);
  return code;
}

void drop_memories(rknn_context handle) {
  int left = 0;
  for (memory *m = memories, *next; m; m = next) {
    next = m->next;
    left += m->owner == handle;
    if (m->owner == handle && m->slice) release(m);
  }
  if (left) violation(PARAM, "a context destroyed before %d of its memories", left);
}

void drop_all_memories(void) {
  for (int slices_only = 1; slices_only >= 0; --slices_only)
    for (memory *m = memories, *next; m; m = next) {
      next = m->next;
      if (m->slice || !slices_only) release(m);
    }
}

EXPORT int rknn_mem_sync(rknn_context handle, rknn_tensor_mem* given, int mode) {
  pthread_mutex_lock(&lock);
  int code = find(handle, "rknn_mem_sync") ? OK : CONTEXT;
  memory* m = code == OK ? find_memory(given, "rknn_mem_sync") : NULL;
  if (code == OK && !m) code = PARAM;
  if (m && (mode < 1 || mode > 3)) code = violation(PARAM, "sync mode %d", mode);
  if (m && code == OK && mode & TO_DEVICE)
    memcpy(m->of->device + m->offset, m->of->host + m->offset, m->size);
  if (m && code == OK && mode & FROM_DEVICE)
    memcpy(m->of->host + m->offset, m->of->device + m->offset, m->size);
  pthread_mutex_unlock(&lock);
  return code;
}

long memory_count(const char* what) {
  if (!strcmp(what, "allocations")) return allocations;
  if (!strcmp(what, "slices")) return slices;
  return !strcmp(what, "bytes") ? (long)mapped : -1;
}
