// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Lengths in pixels.
const (
	pageMargin       = 24
	gutterWidth      = 40 // left of each zone, for the lines from load balancers
	columnWidth      = 330
	itemHeight       = 44
	itemGap          = 8
	subnetHeadHeight = 40 // of a subnet, above its items
	balancerHeight   = 52
	balancerGap      = 16
	rowHeight        = 26 // of the table of flows
)

// layout is the state of drawing one image.
type layout struct {
	canvas
	diagramData
	zones []string
	rows  [][]subnet // each row has at most one subnet for each zone, all of the same kind
	boxes map[string][]rect
	y     int
}

func drawSVG(p diagramData) []byte {
	s := &layout{diagramData: p, boxes: map[string][]rect{}}
	s.arrangeRows()
	width := max(
		2*pageMargin+len(s.zones)*(gutterWidth+columnWidth)+pageMargin,
		2*pageMargin+tableWidth(p.flows),
		640,
	)

	s.y = pageMargin
	s.drawTitle(width)
	s.drawInternet(width)
	top := s.y
	s.y += 30
	boxes := s.drawBalancers(width)
	s.y += 28 + 10*len(s.balancers)
	s.drawSubnetRows()
	s.drawArrows(boxes)
	bottom := s.y
	s.drawFlowTable()
	s.drawFooter(width)

	network := rect{x: pageMargin, y: top, w: width - 2*pageMargin, h: bottom - top}
	return s.renderPage(width, network)
}

// renderPage returns the SVG document: the page, the box of the network, and everything drawn so far above
// it.
func (s *layout) renderPage(width int, network rect) []byte {
	out := &canvas{}
	out.addElement(
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
			`role="img" aria-label="%s">`,
		width,
		s.y,
		width,
		s.y,
		escapeXML("Cluster "+s.cluster),
	)

	out.addElement("%s", svgStyles)
	out.addElement(`<rect class="page" width="%d" height="%d"/>`, width, s.y)
	out.drawBox(network, "network", s.network)
	out.drawText(network.x+12, network.y+20, network.w, "head", s.network)

	return []byte(out.svg.String() + s.svg.String() + "</svg>\n")
}

// arrangeRows sorts the zones and arranges the subnets in rows by kind.
func (s *layout) arrangeRows() {
	for _, n := range s.subnets {
		if !slices.Contains(s.zones, n.zone) {
			s.zones = append(s.zones, n.zone)
		}
	}

	slices.Sort(s.zones)
	kinds := slices.Clone(s.subnets)
	slices.SortStableFunc(
		kinds,
		func(a, b subnet) int { return cmp.Compare(rowRank(a.kind), rowRank(b.kind)) },
	)

	for _, n := range kinds {
		s.placeSubnet(n)
	}
}

// rowRank sorts the rows: subnets with access from the internet first.
func rowRank(kind string) int {
	return slices.IndexFunc(
		[]string{"public", "existing", "private", ""},
		func(p string) bool { return strings.HasPrefix(kind, p) },
	)
}

// placeSubnet adds a subnet to the first row of its kind that has none in its zone yet.
func (s *layout) placeSubnet(n subnet) {
	for i, row := range s.rows {
		taken := slices.ContainsFunc(row, func(o subnet) bool { return o.zone == n.zone })
		if !taken && row[0].kind == n.kind {
			s.rows[i] = append(row, n)
			return
		}
	}

	s.rows = append(s.rows, []subnet{n})
}

func (s *layout) drawTitle(width int) {
	s.drawText(pageMargin, s.y+18, width-2*pageMargin, "title", "Kubernetes cluster "+s.cluster)
	s.y += 44
}

// drawInternet draws the box of the internet. Internet-facing load balancers have an arrow from it.
func (s *layout) drawInternet(width int) {
	s.drawBox(rect{pageMargin, s.y, width - 2*pageMargin, 30}, "world", "the internet")
	s.drawText(pageMargin+12, s.y+20, width, "head", "Internet")
	s.y += 58
}

// drawBalancers draws the load balancers in a row and returns their boxes.
func (s *layout) drawBalancers(width int) []rect {
	n := max(len(s.balancers), 1)
	w := min((width-4*pageMargin-(n-1)*balancerGap)/n, columnWidth)
	var out []rect

	for i, b := range s.balancers {
		r := rect{2*pageMargin + i*(w+balancerGap), s.y, w, balancerHeight}
		s.drawBox(r, "balancer", b.name)
		s.drawText(r.x+10, r.y+21, w-20, "head", "Load balancer "+b.name)
		s.drawText(r.x+10, r.y+40, w-20, "dim", b.scheme+", ports "+strings.Join(b.ports, ", "))
		if b.scheme == "internet-facing" {
			s.drawLine("flow", [2]int{r.x + w/2, s.y - 58}, [2]int{r.x + w/2, s.y - 1})
		}

		out = append(out, r)
	}

	if len(out) > 0 {
		s.y += balancerHeight
	}

	return out
}

// zoneLeft returns the left edge of a zone's column.
func (s *layout) zoneLeft(zone string) int {
	return pageMargin + gutterWidth + slices.Index(s.zones, zone)*(gutterWidth+columnWidth)
}

func (s *layout) drawSubnetRows() {
	top := s.y
	s.y += 30
	for _, row := range s.rows {
		most := 0
		for _, n := range row {
			most = max(most, len(n.items))
		}

		h := subnetHeadHeight + most*(itemHeight+itemGap) + itemGap
		for _, n := range row {
			s.drawSubnetBox(n, h)
		}

		s.y += h + 14
	}

	for _, z := range s.zones {
		x := s.zoneLeft(z) - 8
		s.addElement(
			`<rect class="zone" x="%d" y="%d" width="%d" height="%d" rx="8"/>`,
			x,
			top,
			columnWidth+16,
			s.y-top,
		)

		s.drawText(x+10, top+20, columnWidth, "head", z)
	}

	s.y += 16
}

func (s *layout) drawSubnetBox(n subnet, h int) {
	style, _, _ := strings.Cut(n.kind, ",")
	if style != "public" && style != "private" {
		style = "other"
	}

	r := rect{s.zoneLeft(n.zone), s.y, columnWidth, h}
	s.drawBox(r, style, n.name)
	s.drawText(
		r.x+10,
		r.y+17,
		columnWidth-20,
		"line",
		strings.TrimSuffix("subnet "+n.name+" · "+n.cidr, " · "),
	)

	s.drawText(r.x+10, r.y+32, columnWidth-20, "dim", n.kind)
	y := r.y + subnetHeadHeight

	for _, i := range n.items {
		b := rect{r.x + 10, y, columnWidth - 20, itemHeight}
		style := i.role
		if style != "control-plane" && style != "worker" && style != "bastion" {
			style = "plain"
		}

		s.drawBox(b, style, i.key)
		s.drawText(b.x+10, b.y+18, b.w-20, "head", i.title)
		s.drawText(b.x+10, b.y+35, b.w-20, "dim", i.detail)
		s.boxes[i.key] = append(s.boxes[i.key], b)
		y += itemHeight + itemGap
	}
}

// drawArrows draws arrows from each load balancer, along its own horizontal line and down the gutters, to its
// targets.
func (s *layout) drawArrows(boxes []rect) {
	for i, b := range s.balancers {
		from := boxes[i]
		bus := from.y + balancerHeight + 12 + 10*i
		for _, key := range b.groups {
			for _, to := range s.boxes[key] {
				x := to.x - 10 - 12 - 7*(i%3)
				y := to.y + 12 + 10*(i%3)
				s.drawLine(
					"flow",
					[2]int{from.x + from.w/2, from.y + balancerHeight},
					[2]int{from.x + from.w/2, bus},
					[2]int{x, bus},
					[2]int{x, y},
					[2]int{to.x - 1, y},
				)
			}
		}
	}
}

// Widths of the columns in the table of flows.
const (
	flowFrom  = 220
	flowTo    = 220
	flowPorts = 420
)

func tableWidth(fs []flow) int {
	if len(fs) == 0 {
		return 0
	}

	return flowFrom + flowTo + flowPorts
}

func (s *layout) drawFlowTable() {
	if len(s.flows) == 0 {
		return
	}

	s.y += 30
	s.drawText(pageMargin, s.y, 600, "head", "Permitted connections (security groups)")
	s.y += 12
	s.drawFlowRow("cellhead", flow{from: "from", to: "to", ports: "ports"})
	for _, f := range s.flows {
		s.drawFlowRow("cell", f)
	}
}

func (s *layout) drawFlowRow(style string, f flow) {
	x := pageMargin
	for _, c := range []struct {
		w    int
		text string
	}{{flowFrom, f.from}, {flowTo, f.to}, {flowPorts, f.ports}} {
		s.addElement(`<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`, style, x, s.y, c.w, rowHeight)
		s.drawText(x+8, s.y+17, c.w-16, "line", c.text)
		x += c.w
	}

	s.y += rowHeight
}

func (s *layout) drawFooter(width int) {
	s.y += pageMargin
	if len(s.notes) > 0 {
		s.drawText(
			pageMargin,
			s.y,
			width-2*pageMargin,
			"dim",
			fmt.Sprintf("Also: %s.", strings.Join(s.notes, ", ")),
		)

		s.y += pageMargin
	}
}
