"""What a sequence keeps between calls: latent or expanded KV rows, KDA and convolution states, in slots."""
