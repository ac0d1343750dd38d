// Which instruction set runs. A kernel is a function of one argument struct, compiled once per set.
#pragma once
#include <string>
#include <vector>

namespace mn {

enum class Isa { generic, avx2, neon, neon_dot };  // neon_dot: NEON with SDOT

Isa isa();                              // the one in use; the best that this processor has, at first
bool set_isa(const std::string& name);  // false if this build or this processor doesn't have it
const char* isa_name();
std::vector<std::string> available_isas();  // the best last

}  // namespace mn

// MN_KERNEL(f, Args) declares generic::f, avx2::f, ... and mn::f, which calls the one in use.
#define MN_DECLARE(set, name, Args) \
  namespace set {                   \
  void name(const Args&);           \
  }
#define MN_TRY(set, name) \
  if (isa() == Isa::set) return set::name(args);

#if defined(MN_HAVE_AVX2)
#define MN_DECLARE_SETS(name, Args) MN_DECLARE(avx2, name, Args)
#define MN_TRY_SETS(name) MN_TRY(avx2, name)
#elif defined(MN_HAVE_NEON)
#define MN_DECLARE_SETS(name, Args) \
  MN_DECLARE(neon, name, Args)      \
  MN_DECLARE(neon_dot, name, Args)
#define MN_TRY_SETS(name) \
  MN_TRY(neon_dot, name)  \
  MN_TRY(neon, name)
#else
#define MN_DECLARE_SETS(name, Args)
#define MN_TRY_SETS(name)
#endif

#define MN_KERNEL(name, Args)          \
  namespace mn {                       \
  MN_DECLARE(generic, name, Args)      \
  MN_DECLARE_SETS(name, Args)          \
  inline void name(const Args& args) { \
    MN_TRY_SETS(name)                  \
    generic::name(args);               \
  }                                    \
  }
