// A pool of threads that take numbered tasks until none is left.
#pragma once

#include <cstddef>
#include <functional>

namespace focalcal {

// Call task(i) for every i below `count`, on up to `threads` threads, the calling one among them. Tasks must not depend
// on one another; which thread takes which does not matter to a result that each task writes to a place of its own.
// `keep_going` is asked on the calling thread about ten times a second; once it says no, no further task is started and
// false is returned.
bool parallel_for(std::ptrdiff_t count, int threads, const std::function<void(std::ptrdiff_t)> &task,
                  const std::function<bool()> &keep_going);

}  // namespace focalcal
