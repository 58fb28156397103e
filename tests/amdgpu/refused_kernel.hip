// An instruction that no codec has a use for, and the translator therefore does not know.
extern "C" __attribute__((global)) void waved(float *out) {
    float result;
    asm("v_sin_f32 %0, %1" : "=v"(result) : "v"(out[0]));
    out[0] = result;
}
