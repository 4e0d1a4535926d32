// The threads that run the steps of a pass together, and the barrier at which they wait for each other.
//
// OpenMP would start and end a parallel region for each step, with system calls at every end: for a short text that takes as
// long as the steps themselves. So a pass is one region, in which every thread takes its share of each step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>

#include "interface.h"

// `build.py` defines HEADLIGHT_PROCESSOR as the header of what processors of the target's kind have.
#include HEADLIGHT_PROCESSOR

// The barrier after each step, which also tells all threads the outcome of the step.
//
// Each thread writes how far it is to a cache line of its own, and reads those of the others. A counter that all write to
// would go back and forth between the cores, which takes microseconds a step where they share no cache.
class Barrier {
   public:
    explicit Barrier(int threads) : places_(new (std::nothrow) Place[threads]) {}

    bool has_room() const { return places_ != nullptr; }

    // Wait until all threads have come to this step, the first of which has number 1; returns DONE if all of them came with
    // that, else the outcome of one that did not.
    int wait(int outcome, int64_t step, int thread, int threads) {
        word(thread, step).store(step * OUTCOMES - outcome, std::memory_order_release);
        for (int other = 0; other < threads; other++) {
            const int64_t seen = other == thread ? step * OUTCOMES - outcome : read(word(other, step), step);
            if (seen != step * OUTCOMES) return (int)(step * OUTCOMES - seen);
        }
        return DONE;
    }

   private:
    static constexpr int64_t OUTCOMES = 4;   // outcomes are 0 to −3
    static constexpr int SPINS = 1 << 14;  // a few hundred microseconds

    // Steps take turns with two words: a thread that goes on to the next one leaves what another has yet to read.
    struct alignas(64) Place {
        std::atomic<int64_t> words[2] = {{0}, {0}};
    };

    std::atomic<int64_t> &word(int thread, int64_t step) { return places_[thread].words[step % 2]; }

    static int64_t read(const std::atomic<int64_t> &word, int64_t step) {
        int64_t seen = word.load(std::memory_order_acquire);
        for (int spins = 0; seen < step * OUTCOMES; spins += spins < SPINS) {
            rest(spins);
            seen = word.load(std::memory_order_acquire);
        }
        return seen;
    }

    // The others are nearly done. If not, the system has suspended one of them, perhaps for this thread.
    static void rest(int spins) {
        if (spins < SPINS)
            pause_briefly();
        else
            std::this_thread::yield();
    }

    std::unique_ptr<Place[]> places_;
};

inline bool stops(const Progress *progress) { return progress && __atomic_load_n(&progress->stopping, __ATOMIC_RELAXED); }

// One thread of those that run a pass, of whom the first does what is not shared.
class Member {
   public:
    Member(Barrier &barrier, Progress *progress, int number, int threads)
        : leads(number == 0), barrier_(barrier), progress_(leads ? progress : nullptr), number_(number), threads_(threads) {}

    // Wait for the other threads after a step; returns its outcome on all of them, STOPPED if the pass is to end.
    int synchronize(int outcome) {
        if (outcome == DONE && stops(progress_)) outcome = STOPPED;
        outcome = barrier_.wait(outcome, ++step_, number_, threads_);
        if (progress_) __atomic_fetch_add(&progress_->steps, 1, __ATOMIC_RELAXED);
        return outcome;
    }

    void finish_layer() const {
        if (progress_) __atomic_fetch_add(&progress_->layers, 1, __ATOMIC_RELAXED);
    }

    const bool leads;

   private:
    Barrier &barrier_;
    Progress *const progress_;  // of the first thread
    const int number_, threads_;
    int64_t step_ = 0;
};
