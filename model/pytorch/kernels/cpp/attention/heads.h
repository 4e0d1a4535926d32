// Attention of all heads of all sequences, shared out to the threads.
#pragma once

#include <numeric>
#include <optional>

#include "../attention.h"
#include "../observing/average.h"
#include "arguments.h"

namespace HEADLIGHT_NAMESPACE {

// A thread's share of the heads of all sequences; false if out of memory.
template <class P>
bool attend_heads(const Attention &all, int64_t longest, Work &work) {
    bool whole = true;
    const int64_t tasks = all.sequences * all.heads;
    const auto run = [&](int64_t task) {
        // A sorted batch has its longest sequences last: start with them, to balance the threads.
        const int64_t sequence = all.sequences - 1 - task / all.heads;
        if (all.starts[sequence + 1] > all.starts[sequence])
            whole = Head<P>(all, sequence, task % all.heads).run(work) && whole;
    };
    if (all.sequences == 1) {  // heads take the same time, so no thread need ask which is next
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < tasks; task++) run(task);
    } else {
        const int some = longest > Head<P>::WHOLE ? 1 : 4;
#pragma omp for schedule(dynamic, some) nowait
        for (int64_t task = 0; task < tasks; task++) run(task);
    }
    return whole;
}

// A thread's share of the rows of the heads of one long text, as large as those of the others; false if out of memory.
template <class P>
bool attend_shares(const Attention &all, Work &work) {
    const int64_t threads = omp_get_num_threads(), shares = threads / std::gcd(threads, all.heads);
    std::optional<Head<P>> head;
    int64_t number = -1;
    bool whole = true;
#pragma omp for schedule(static) nowait
    for (int64_t task = 0; task < all.heads * shares; task++) {
        if (task / shares != number) {
            number = task / shares;
            head.emplace(all, 0, number);
            whole = head->lay_out() && whole;
        }
        if (whole) head->run_rows(task % shares, shares, work);
    }
    return whole;
}

// All heads of all sequences.
template <class P>
int attend(const Attention *all) {
    if (all == nullptr || !fits<P>(*all)) return BAD_ARGUMENT;
    if (averages(*all)) return average<P>(all);
    const int64_t longest = longest_of(*all);
    return on_every_thread([all, longest] {
        Work work(all->steps);
        P::begin();
        const bool alone = longest > Head<P>::WHOLE && all->sequences == 1 && all->output;
        const bool shared = alone && !all->observations && !all->interventions;
        const bool whole = shared ? attend_shares<P>(*all, work) : attend_heads<P>(*all, longest, work);
        P::end();
        return whole ? DONE : NO_MEMORY;
    });
}

}  // namespace HEADLIGHT_NAMESPACE
