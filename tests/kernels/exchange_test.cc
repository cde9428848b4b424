#include "kernels/exchange.h"
int main() {}
