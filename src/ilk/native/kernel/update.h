// The optimiser's step, and what is added to a gradient: see tasks/sgd.py.
#pragma once

struct Update {
    float* theta;
    float* velocity;
    const float* received;  // or null
    const float* push;      // or null
    const float* drift;     // or null
    float lr, momentum, decay, proximal;
};

INLINE void update(const Update& u, int64_t at, vf gradient) {
    vf theta = load(u.theta + at);
    if (u.decay != 0) gradient += u.decay * theta;
    if (u.received) gradient += u.proximal * (theta - load(u.received + at));
    if (u.push) gradient += load(u.push + at);
    vf velocity = u.momentum * load(u.velocity + at) + gradient;
    store(u.velocity + at, velocity);
    if (u.drift) velocity += load(u.drift + at);
    store(u.theta + at, theta - u.lr * velocity);
}

static void update_all(const Update& u, int64_t at, const float* gradient, int64_t floats) {
    for (int64_t i = 0; i < floats; i += LANES) update(u, at + i, load(gradient + i));
}
