/* MKL takes its vectorised code where this says that the CPU is Intel's, and on others code for any x86, but for products on AMD's Zen.
 * PyTorch's library calls it through its table of symbols, so what is preloaded is what it asks. */
int mkl_serv_intel_cpu_true(void) {
  return 1;
}
