// Which instruction set runs. A kernel is a function of one argument struct, compiled once per set.
#pragma once
#include <string>
#include <vector>

namespace mn {

enum class Isa { generic, avx2 };

Isa isa();                              // the one in use; the best that this processor has, at first
bool set_isa(const std::string& name);  // false if this build or this processor doesn't have it
const char* isa_name();
std::vector<std::string> available_isas();

}  // namespace mn

// MN_KERNEL(f, Args) declares generic::f, avx2::f, ... and mn::f, which calls the one in use.
#if defined(MN_HAVE_AVX2)
#define MN_KERNEL(name, Args)                        \
  namespace mn {                                     \
  namespace generic {                                \
  void name(const Args&);                            \
  }                                                  \
  namespace avx2 {                                   \
  void name(const Args&);                            \
  }                                                  \
  inline void name(const Args& args) {               \
    if (isa() == Isa::avx2) return avx2::name(args); \
    generic::name(args);                             \
  }                                                  \
  }
#else
#define MN_KERNEL(name, Args)          \
  namespace mn {                       \
  namespace generic {                  \
  void name(const Args&);              \
  }                                    \
  inline void name(const Args& args) { \
    generic::name(args);               \
  }                                    \
  }
#endif
