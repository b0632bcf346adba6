// Package openai is the wire format that clients and engines speak: which paths exist, what of a request body the door must
// know, what a response says about its usage, and how a refusal looks to a client.
//
// It promises:
//   - [Scan] reads a request body once, copies none of it, and refuses whatever two parsers could read differently in the
//     fields that decide who may do what. What it accepts goes upstream byte for byte. On the way it measures the prompt.
//   - [DecodeBody] is the only place that takes a content-encoding off, for the door and for the engine alike.
//   - [Meter] gives the same [Report] however the bytes of a response are cut, keeps a fixed small state, and never fails.
//     Usage that was not reported is unknown (nil), never 0.
//   - [ReadNote] gives back the report that [AppendNote] wrote, and believes nothing that no meter could say.
//   - [Error] is the only place that maps a kind of refusal to a status, a body and headers.
//
// It does not check that a request makes sense to an engine (messages, tools, sampling): that is between client and engine.
// It does no I/O and reads no clock.
package openai
