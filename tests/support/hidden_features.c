/* Hides features of an x86 processor from a program that this library is preloaded into, as its CPUID would. Only the
   program that runs from then on is told; what runs is the processor itself. Needs a kernel and a processor that can
   fault on CPUID (cpuid_fault in /proc/cpuinfo). HIDDEN_FEATURES has what is hidden, as four masks in hexadecimal: of
   leaf 7 EBX, ECX and EDX, and of leaf 7.1 EAX. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012

static uint32_t hidden[4];
static struct sigaction before;

static void answer(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) { /* no CPUID: the program's own fault */
        sigaction(SIGSEGV, &before, NULL);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], part = (uint32_t)registers[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1UL);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0UL);
    if (leaf == 7 && part == 0) {
        b &= ~hidden[0];
        c &= ~hidden[1];
        d &= ~hidden[2];
    } else if (leaf == 7 && part == 1) {
        a &= ~hidden[3];
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void) {
    const char *masks = getenv("HIDDEN_FEATURES");
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (masks == NULL || sscanf(masks, "%x,%x,%x,%x", &hidden[0], &hidden[1], &hidden[2], &hidden[3]) != 4 ||
        sigaction(SIGSEGV, &action, &before) != 0 || syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0UL) != 0) {
        perror("the processor's features cannot be hidden");
        _exit(2);
    }
}
