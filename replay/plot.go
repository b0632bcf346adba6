package replay

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// Plots are light, and need nothing but a browser.
const (
	plotWide, plotHigh = 760, 420
	left, right        = 120, 20
	top, bottom        = 50, 60
)

// colours of the ways, in their order; the bound comes last.
var colours = []string{"#8c8c8c", "#c49a00", "#b5542c", "#7a4fb5", "#1f6fb4", "#2c8a4b", "#444444"}

func begin(title, x string) *bytes.Buffer {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" fill="#222">`+"\n", plotWide, plotHigh)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWide, plotHigh)
	fmt.Fprintf(b, `<text x="%d" y="26" font-size="16">%s</text>`+"\n", left, html.EscapeString(title))
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+plotWide-right)/2, plotHigh-14, html.EscapeString(x))
	return b
}

func line(b *bytes.Buffer, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e2e2e2"/>`+"\n", x1, y1, x2, y2)
}

func label(b *bytes.Buffer, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

// PlotTTFT draws, for each way, which share of the first tokens was out after how long.
func PlotTTFT(title string, results []Result) []byte {
	b := begin("Time to first token: "+title, "seconds (logarithmic)")
	low, high := 0.01, 1.0
	for _, r := range results {
		if n := len(r.TTFTs); n > 0 {
			high = max(high, r.TTFTs[n-1])
		}
	}
	x := func(s float64) float64 {
		at := math.Log(max(s, low)/low) / math.Log(high/low)
		return left + at*(plotWide-left-right)
	}
	y := func(share float64) float64 { return plotHigh - bottom - share*(plotHigh-top-bottom) }
	for s := low; s <= high; s *= 10 {
		line(b, x(s), y(0), x(s), y(1))
		label(b, x(s), y(0)+18, "middle", fmt.Sprintf("%g", s))
	}
	for share := 0; share <= 100; share += 25 {
		at := y(float64(share) / 100)
		line(b, x(low), at, x(high), at)
		label(b, left-8, at+4, "end", fmt.Sprintf("%d %%", share))
	}
	drawn := 0
	for i, r := range results {
		if len(r.TTFTs) == 0 {
			continue // the bound has none
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colours[i%len(colours)])
		for k := 0; k <= 200; k++ {
			share := float64(k) / 200
			fmt.Fprintf(b, "%.1f,%.1f ", x(quantile(r.TTFTs, share)), y(share))
		}
		b.WriteString("\"/>\n")
		at := float64(top + 12 + 18*drawn)
		fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="12" height="4" fill="%s"/>`+"\n", left+10, at-6, colours[i%len(colours)])
		label(b, left+28, at, "start", r.Way)
		drawn++
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// PlotTokens draws a bar a way: its prompt tokens computed, and the share found in caches.
func PlotTokens(title string, results []Result) []byte {
	b := begin("Prompt tokens computed: "+title, "million tokens; in brackets the share found in caches")
	most := 1.0
	for _, r := range results {
		most = max(most, float64(r.Prefilled))
	}
	step := float64(plotHigh-top-bottom) / float64(max(len(results), 1))
	for i, r := range results {
		at := top + float64(i)*step
		wide := float64(r.Prefilled) / most * (plotWide - left - right - 130)
		fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, at+step*0.15, wide, step*0.7, colours[i%len(colours)])
		label(b, left-8, at+step/2+4, "end", r.Way)
		label(b, left+wide+8, at+step/2+4, "start", fmt.Sprintf("%.1f M (%.1f %%)", float64(r.Prefilled)/1e6, 100*r.HitRate))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
