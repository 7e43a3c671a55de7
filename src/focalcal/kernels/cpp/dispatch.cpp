#include "dispatch.h"

#include <atomic>

namespace focalcal {

// Every instruction set has a table of its own; CMakeLists.txt says which are compiled.
namespace baseline { extern const Kernels table; }
#if defined(FOCALCAL_X86)
namespace avx2 { extern const Kernels table; }
namespace avx512 { extern const Kernels table; }
#endif

namespace {

std::vector<const Kernels *> runnable() {
  std::vector<const Kernels *> found{&baseline::table};
#if defined(FOCALCAL_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    found.push_back(&avx2::table);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
      found.push_back(&avx512::table);
  }
#endif
  return found;
}

std::atomic<const Kernels *> chosen{nullptr};

}  // namespace

const Kernels &kernels() {
  const Kernels *held = chosen.load(std::memory_order_relaxed);
  if (!held) chosen = held = runnable().back();
  return *held;
}

std::vector<std::string> available() {
  std::vector<std::string> names;
  for (const Kernels *each : runnable()) names.emplace_back(each->name);
  return names;
}

bool choose(const std::string &name) {
  for (const Kernels *each : runnable())
    if (name == each->name) {
      chosen = each;
      return true;
    }
  return false;
}

}  // namespace focalcal
