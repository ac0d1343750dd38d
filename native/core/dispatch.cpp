#include "core/dispatch.hpp"

#include <atomic>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mn {
namespace {

struct Named {
  Isa isa;
  const char* name;
};
constexpr Named kNames[] = {
    {Isa::generic, "generic"}, {Isa::avx2, "avx2"}, {Isa::neon, "neon"}, {Isa::neon_dot, "neon_dot"}};

bool has(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
#if defined(MN_HAVE_AVX2)
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
#else
      return false;
#endif
    case Isa::neon:
#if defined(MN_HAVE_NEON)
      return true;  // part of every AArch64
#else
      return false;
#endif
    case Isa::neon_dot:
#if !defined(MN_HAVE_NEON)
      return false;
#elif defined(__ARM_FEATURE_DOTPROD)  // what the whole build asks for, as on macOS
      return true;
#elif defined(__linux__)
      return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
      return false;
#endif
  }
  return false;
}

Isa best() {
  Isa found = Isa::generic;
  for (const Named& n : kNames)
    if (has(n.isa)) found = n.isa;
  return found;
}

std::atomic<Isa> current{best()};

}  // namespace

Isa isa() {
  return current.load(std::memory_order_relaxed);
}

const char* isa_name() {
  return kNames[static_cast<int>(isa())].name;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Named& n : kNames)
    if (has(n.isa)) names.push_back(n.name);
  return names;
}

bool set_isa(const std::string& name) {
  for (const Named& n : kNames)
    if (name == n.name && has(n.isa)) {
      current = n.isa;
      return true;
    }
  return false;
}

}  // namespace mn
