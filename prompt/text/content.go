package text

import (
	"crypto/rand"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/spokegate/spokegate/openai"
)

// mark stands in a rendered chat where its first message begins that has more in it than text: what an engine makes of an
// image, and where in its message, no template tells. No client knows it.
var mark = "spokegate" + rand.Text()

// piece of a message's content: text, or the kind of what is none as engines name it to templates; empty: they are not told.
type piece struct {
	text  string
	other bool
	kind  string
}

// piecesOf a content. The error says what the first is that is no text.
func piecesOf(content []byte) (pieces []piece, err error) {
	switch kind(content) {
	case '"':
		return []piece{{text: unquote(content)}}, nil
	case '[':
		openai.Each(content, func(_, part []byte) bool {
			p, what := pieceOf(part)
			if err == nil {
				err = what
			}
			pieces = append(pieces, p)
			return true
		})
	}
	return pieces, err
}

func pieceOf(part []byte) (piece, error) {
	if kind(part) == '"' {
		return piece{text: unquote(part)}, nil
	}
	in := members(part)
	var text []byte
	switch unquote(in["type"]) {
	case "text", "input_text", "output_text":
		text = in["text"]
	case "refusal":
		text = in["refusal"]
	case "image_url", "input_image", "image_pil", "image_embeds":
		return piece{other: true, kind: "image"}, ErrImage
	case "audio_url", "input_audio", "audio_embeds":
		return piece{other: true, kind: "audio"}, ErrAudio
	case "video_url":
		return piece{other: true, kind: "video"}, ErrVideo
	}
	if kind(text) != '"' {
		return piece{other: true}, ErrParts
	}
	return piece{text: unquote(text)}, nil
}

// joined is a content as one string. Empty ones are left out where the engine has strings only.
func joined(content []piece, empty bool) string {
	var some []string
	for _, p := range content {
		if !p.other && (empty || p.text != "" || len(content) == 1) {
			some = append(some, p.text)
		}
	}
	return strings.Join(some, "\n")
}

func asParts(content []piece) jinja.Value {
	var list []jinja.Value
	for _, p := range content {
		part := jinja.NewDict()
		switch {
		case !p.other:
			part.AsDict().Set("type", jinja.NewString("text"))
			part.AsDict().Set("text", jinja.NewString(p.text))
		case p.kind == "":
			continue
		default:
			part.AsDict().Set("type", jinja.NewString(p.kind))
		}
		list = append(list, part)
	}
	return jinja.NewList(list)
}

// attribution begins a line that Claude Code puts in front of its system prompt.
const attribution = "x-anthropic-billing-header"

func withoutAttribution(content []piece) []piece {
	var out []piece
	for _, p := range content {
		if strings.HasPrefix(p.text, attribution) {
			if _, p.text, _ = strings.Cut(p.text, "\n"); p.text == "" {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}
