/* The part of the RKNN matmul library's ABI (SDK 2.3.2, aarch64) that the emulation has. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum {
  OK = 0,
  FAIL = -1,
  TIMEOUT = -2,
  UNAVAILABLE = -3,
  MALLOC = -4,
  PARAM = -5,
  CONTEXT = -7,
  INPUT = -8,
  OUTPUT = -9
};
enum { F16_F32 = 1, I8_I32 = 2 };                       /* matmul type */
enum { NORM = 0, NATIVE = 1, TP_NORM = 2 };             /* layout */
enum { TO_DEVICE = 1, FROM_DEVICE = 2 };                /* sync */
enum { FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, INT32 = 6 }; /* tensor type */
enum { QUERY_SDK_VERSION = 5 };

typedef uint64_t rknn_context;

typedef struct {
  int32_t M, K, N, type;
  int16_t B_layout, B_quant_type, AC_layout, AC_quant_type;
  int32_t iommu_domain_id;
  int16_t group_size;
  int8_t reserved[34];
} rknn_matmul_info;

typedef struct {
  char name[256];
  uint32_t n_dims, dims[16], size;
  int32_t type;
} rknn_matmul_tensor_attr;

typedef struct {
  rknn_matmul_tensor_attr A, B, C;
} rknn_matmul_io_attr;

typedef struct {
  void* virt_addr;
  uint64_t phys_addr;
  int32_t fd, offset;
  uint32_t size, flags;
  void* priv_data;
} rknn_tensor_mem;

typedef struct {
  int32_t M, K, N;
} rknn_matmul_shape;

typedef struct {
  char api[256], driver[256];
} rknn_sdk_version;

#define HAS(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == offset, #type "." #field)
HAS(rknn_matmul_info, 64);
AT(rknn_matmul_info, B_layout, 16);
AT(rknn_matmul_info, iommu_domain_id, 24);
AT(rknn_matmul_info, reserved, 30);
HAS(rknn_matmul_tensor_attr, 332);
AT(rknn_matmul_tensor_attr, dims, 260);
AT(rknn_matmul_tensor_attr, size, 324);
HAS(rknn_matmul_io_attr, 996);
HAS(rknn_tensor_mem, 40);
AT(rknn_tensor_mem, fd, 16);
AT(rknn_tensor_mem, priv_data, 32);
HAS(rknn_matmul_shape, 12);
