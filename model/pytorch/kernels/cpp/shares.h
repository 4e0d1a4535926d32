// Shares of a step, one for each thread.
#pragma once

#include <omp.h>

#include "interface.h"
#include "words.h"

namespace HEADLIGHT_NAMESPACE {

// Run a share of a step on every thread of the pass that it is part of (`layers.cpp`), or else of a region of its own. A share
// can only fail for lack of memory. In a pass, other threads may still be at work when this returns.
template <class Share>
int on_every_thread(Share share) {
    if (omp_get_level() > 0) return share();
    bool whole = true;
#pragma omp parallel reduction(&& : whole)
    whole = share() == DONE;
    return whole ? DONE : NO_MEMORY;
}

// Counts the progress of one thread within a step, which may take seconds for a long text. A short text never has that much
// to do, and with long ones threads count so rarely that they do not compete for the counter.
class Work {
   public:
    explicit Work(int64_t *steps) : steps_(steps) {}

    void add(int64_t multiplications) {
        if (!steps_ || (done_ += multiplications) < COUNTED) return;
        done_ = 0;
        __atomic_fetch_add(steps_, 1, __ATOMIC_RELAXED);
    }

   private:
    static constexpr int64_t COUNTED = 1 << 26;  // multiplications: milliseconds at most
    int64_t *const steps_;
    int64_t done_ = 0;
};

}  // namespace HEADLIGHT_NAMESPACE
