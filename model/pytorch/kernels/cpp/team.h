// The threads that run the steps of a pass together, and the barrier at which they wait for each other.
//
// OpenMP would start and end a parallel region for each step, with system calls at every end: for a short text that takes as
// long as the steps themselves. So a pass is one region, in which every thread takes its share of each step.
#pragma once

#include <atomic>
#include <thread>

#include "interface.h"

// The barrier after each step, which also tells all threads the outcome of the step.
class Barrier {
   public:
    // Wait until all `threads` have called; returns DONE if all of them came with that, else the outcome of one that did not.
    int wait(int outcome, int threads) {
        if (outcome != DONE) pending_.store(outcome, std::memory_order_relaxed);
        const unsigned number = number_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            // A thread that goes on may fail in the next step before another has read how this one ended.
            outcome_.store(pending_.load(std::memory_order_relaxed), std::memory_order_relaxed);
            number_.store(number + 1, std::memory_order_release);
        } else {
            for (int spins = 0; number_.load(std::memory_order_acquire) == number; spins += spins < SPINS) rest(spins);
        }
        return outcome_.load(std::memory_order_relaxed);
    }

   private:
    static constexpr int SPINS = 1 << 14;  // a few hundred microseconds

    // The others are nearly done. If not, the system has suspended one of them, perhaps for this thread.
    static void rest(int spins) {
        if (spins < SPINS)
            __builtin_ia32_pause();
        else
            std::this_thread::yield();
    }

    std::atomic<int> arrived_{0}, pending_{DONE}, outcome_{DONE};
    std::atomic<unsigned> number_{0};
};

// One thread of those that run a pass, of whom the first does what is not shared.
class Member {
   public:
    Member(Barrier &barrier, int number, int threads) : leads(number == 0), barrier_(barrier), threads_(threads) {}

    // Wait for the other threads after a step; returns its outcome on all of them.
    int synchronize(int outcome) const { return barrier_.wait(outcome, threads_); }

    const bool leads;

   private:
    Barrier &barrier_;
    const int threads_;
};
