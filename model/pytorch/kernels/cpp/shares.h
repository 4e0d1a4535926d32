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

}  // namespace HEADLIGHT_NAMESPACE
