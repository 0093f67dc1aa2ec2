// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// canvas collects SVG elements. Lengths are pixels, counted from the top left corner.
type canvas struct{ svg strings.Builder }

// rect is a box. Its fields are pixels.
type rect struct{ x, y, w, h int }

func (c *canvas) addElement(format string, args ...any) { fmt.Fprintf(&c.svg, format+"\n", args...) }

// drawBox draws r with rounded corners; style is its CSS class, tip its tooltip.
func (c *canvas) drawBox(r rect, style, tip string) {
	c.addElement(
		`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"><title>%s</title></rect>`,
		style,
		r.x,
		r.y,
		r.w,
		r.h,
		escapeXML(tip),
	)
}

// drawText writes s at x on the base line y, truncated to width.
func (c *canvas) drawText(x, y, width int, style, s string) {
	c.addElement(
		`<text class="%s" x="%d" y="%d">%s</text>`,
		style,
		x,
		y,
		escapeXML(truncateText(s, width, style)),
	)
}

// drawLine draws a line through points that ends in an arrow.
func (c *canvas) drawLine(style string, points ...[2]int) {
	var d strings.Builder
	for i, p := range points {
		op := " L"
		if i == 0 {
			op = "M"
		}

		fmt.Fprintf(&d, "%s%d %d", op, p[0], p[1])
	}

	c.addElement(`<path class="%s" d="%s" marker-end="url(#arrow)"/>`, style, d.String())
}

// The width of a character in each text size, in tenths of a pixel, for common sans-serif fonts, rounded up.
const (
	titleCharWidth = 110
	headCharWidth  = 82
	textCharWidth  = 68
)

// truncateText truncates s to width pixels.
func truncateText(s string, width int, style string) string {
	wide := textCharWidth
	switch style {
	case "title":
		wide = titleCharWidth
	case "head":
		wide = headCharWidth
	}

	most := max(width*10/wide, 1)
	if utf8.RuneCountInString(s) <= most {
		return s
	}

	return string([]rune(s)[:most-1]) + "…"
}

func escapeXML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// svgStyles works on light and dark screens. Every colour's meaning is also given in words.
const svgStyles = `<style>
text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2933 }
.title { font-size: 20px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 } .dim { fill: #52606d }
.page { fill: #ffffff } .network { fill: #f5f7fa; stroke: #9aa5b1; stroke-width: 1.5 }
.zone { fill: none; stroke: #9aa5b1; stroke-dasharray: 6 4 }
.public { fill: #e9f7ef; stroke: #57a773 } .private { fill: #eaf2fb; stroke: #6b9bd1 } .other { fill: #f3eefb; stroke: #9f86c0 }
.control-plane { fill: #ffffff; stroke: #1d4ed8; stroke-width: 2 } .worker { fill: #ffffff; stroke: #15803d; stroke-width: 2 }
.bastion { fill: #ffffff; stroke: #b45309; stroke-width: 2 } .plain { fill: #ffffff; stroke: #7b8794 }
.balancer { fill: #fff7e6; stroke: #c27803; stroke-width: 1.5 } .world { fill: #e4e7eb; stroke: #7b8794 }
.flow { fill: none; stroke: #c27803; stroke-width: 1.5 } .cell { fill: #ffffff; stroke: #cbd2d9 } .cellhead { fill: #e4e7eb; stroke: #cbd2d9 }
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c27803"/></marker></defs>`
