// Package worker is the shim: it stands before one engine and is the only way to it.
//
// It promises that nothing is served without a trusted context of a door that it has joined, and no context twice; that a
// stream reaches the client byte for byte as the engine would have sent it for the client's own options, event by event as
// they come, with comment lines added that note what it has used so far; that a stream which the engine breaks off ends with an error event;
// that the engine is told at once when the client leaves; and that each attempt which it took leaves exactly one "served"
// record, however it ended. A request that it refused leaves none, and its answer carries x-spokegate-refused.
//
// A response's headers leave with its first whole event (or body), so an engine that dies before that is a 503 which the
// door may try elsewhere, and nothing was promised to the client.
//
// Two workers may share a request, where its door signs a context for each of two legs. The one that answers passes the
// client's request on to the prefiller, with that leg's context, which names it: X-Spokegate-Prefill-Context. The prefiller
// has its engine read the prompt and generate one token, and writes a "served" record of leg "prefill"; what its engine says
// of the blocks goes to the engine that answers (kv_transfer_params, as vLLM has them). Whatever fails in that, the own
// engine reads the prompt, and the client does not learn of it.
//
// Bounds: a request body is held whole (Config.MaxBody); it must arrive within Config.BodyTimeout, and of the compressed ones
// that unfold to much, four unfold at one time. Of a response one event is held (maxEvent; a larger one passes unchanged), or a
// JSON body up to maxWhole (a larger one streams). So a request that runs holds at most MaxBody and about 2 MiB.
//
// It does not limit, route or admit: a door did. It does not judge whether an engine that answers is well (later).
package worker
