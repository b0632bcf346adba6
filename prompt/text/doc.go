// Package text renders a request into the text that the engine's tokenizer is given, and normalises it as the tokenizer does
// first. So the bytes can be held against the blocks that the engine announces, without a tokenizer.
//
// What vLLM does to messages before its chat template sees them is done here too (see messages.go). It promises never to guess:
// a request that it cannot render as the engine would (images, token ids, a template that fails, a tokenizer whose normaliser
// it does not know) is an error of a known kind, and is routed by prediction.
//
// It does not promise to refuse what an engine would: it is asked about requests that were admitted, and never judges them.
package text
