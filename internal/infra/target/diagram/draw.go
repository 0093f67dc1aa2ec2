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
	margin     = 24
	gutter     = 40 // left of each zone: the lines from load balancers run there
	column     = 330
	itemHeight = 44
	itemGap    = 8
	headHeight = 40 // of a subnet, above its items
	ballHeight = 52
	ballGap    = 16
	rowHeight  = 26 // of the table of flows
)

// sheet is a picture on its way to being drawn.
type sheet struct {
	canvas
	picture
	zones []string
	rows  [][]subnet // each row: one subnet a zone at most, alike in kind
	boxes map[string][]rect
	y     int
}

func draw(p picture) []byte {
	s := &sheet{picture: p, boxes: map[string][]rect{}}
	s.arrange()
	width := max(2*margin+len(s.zones)*(gutter+column)+margin, 2*margin+tableWidth(p.flows), 640)
	s.y = margin
	s.head(width)
	s.world(width)
	top := s.y
	s.y += 30
	balls := s.balls(width)
	s.y += 28 + 10*len(s.balancers)
	s.subnetRows()
	s.arrows(balls)
	bottom := s.y
	s.flowTable()
	s.footer(width)
	return s.page(width, rect{margin, top, width - 2*margin, bottom - top})
}

// page puts what was drawn onto a page, above the box of the network.
func (s *sheet) page(width int, network rect) []byte {
	out := &canvas{}
	out.f(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`,
		width, s.y, width, s.y, escape("Cluster "+s.cluster))
	out.f("%s", styles)
	out.f(`<rect class="page" width="%d" height="%d"/>`, width, s.y)
	out.box(network, "network", s.network)
	out.text(network.x+12, network.y+20, network.w, "head", s.network)
	return []byte(out.b.String() + s.b.String() + "</svg>\n")
}

// arrange sorts the zones and puts subnets of one kind into rows.
func (s *sheet) arrange() {
	for _, n := range s.subnets {
		if !slices.Contains(s.zones, n.zone) {
			s.zones = append(s.zones, n.zone)
		}
	}
	slices.Sort(s.zones)
	kinds := slices.Clone(s.subnets)
	slices.SortStableFunc(kinds, func(a, b subnet) int { return cmp.Compare(rank(a.kind), rank(b.kind)) })
	for _, n := range kinds {
		s.place(n)
	}
}

// rank orders the rows from the world inwards.
func rank(kind string) int {
	return slices.IndexFunc([]string{"public", "existing", "private", ""}, func(p string) bool { return strings.HasPrefix(kind, p) })
}

// place puts a subnet into the first row of its kind that has room in its zone.
func (s *sheet) place(n subnet) {
	for i, row := range s.rows {
		taken := slices.ContainsFunc(row, func(o subnet) bool { return o.zone == n.zone })
		if !taken && row[0].kind == n.kind {
			s.rows[i] = append(row, n)
			return
		}
	}
	s.rows = append(s.rows, []subnet{n})
}

func (s *sheet) head(width int) {
	s.text(margin, s.y+18, width-2*margin, "title", "Kubernetes cluster "+s.cluster)
	s.y += 44
}

// world is what lies outside: the load balancers that face it have an arrow from it.
func (s *sheet) world(width int) {
	s.box(rect{margin, s.y, width - 2*margin, 30}, "world", "the internet")
	s.text(margin+12, s.y+20, width, "head", "Internet")
	s.y += 58
}

// balls draws the load balancers beside each other and returns where.
func (s *sheet) balls(width int) []rect {
	n := max(len(s.balancers), 1)
	w := min((width-4*margin-(n-1)*ballGap)/n, column)
	var out []rect
	for i, b := range s.balancers {
		r := rect{2*margin + i*(w+ballGap), s.y, w, ballHeight}
		s.box(r, "balancer", b.name)
		s.text(r.x+10, r.y+21, w-20, "head", "Load balancer "+b.name)
		s.text(r.x+10, r.y+40, w-20, "dim", b.scheme+", ports "+strings.Join(b.ports, ", "))
		if b.scheme == "internet-facing" {
			s.line("flow", [2]int{r.x + w/2, s.y - 58}, [2]int{r.x + w/2, s.y - 1})
		}
		out = append(out, r)
	}
	if len(out) > 0 {
		s.y += ballHeight
	}
	return out
}

// left is where the column of a zone begins.
func (s *sheet) left(zone string) int {
	return margin + gutter + slices.Index(s.zones, zone)*(gutter+column)
}

func (s *sheet) subnetRows() {
	top := s.y
	s.y += 30
	for _, row := range s.rows {
		most := 0
		for _, n := range row {
			most = max(most, len(n.items))
		}
		h := headHeight + most*(itemHeight+itemGap) + itemGap
		for _, n := range row {
			s.subnetBox(n, h)
		}
		s.y += h + 14
	}
	for _, z := range s.zones {
		x := s.left(z) - 8
		s.f(`<rect class="zone" x="%d" y="%d" width="%d" height="%d" rx="8"/>`, x, top, column+16, s.y-top)
		s.text(x+10, top+20, column, "head", z)
	}
	s.y += 16
}

func (s *sheet) subnetBox(n subnet, h int) {
	style, _, _ := strings.Cut(n.kind, ",")
	if style != "public" && style != "private" {
		style = "other"
	}
	r := rect{s.left(n.zone), s.y, column, h}
	s.box(r, style, n.name)
	s.text(r.x+10, r.y+17, column-20, "line", strings.TrimSuffix("subnet "+n.name+" · "+n.cidr, " · "))
	s.text(r.x+10, r.y+32, column-20, "dim", n.kind)
	y := r.y + headHeight
	for _, i := range n.items {
		b := rect{r.x + 10, y, column - 20, itemHeight}
		style := i.role
		if style != "control-plane" && style != "worker" && style != "bastion" {
			style = "plain"
		}
		s.box(b, style, i.key)
		s.text(b.x+10, b.y+18, b.w-20, "head", i.title)
		s.text(b.x+10, b.y+35, b.w-20, "dim", i.detail)
		s.boxes[i.key] = append(s.boxes[i.key], b)
		y += itemHeight + itemGap
	}
}

// arrows lead from each load balancer along a bus of its own and down the gutters to the machines behind it.
func (s *sheet) arrows(balls []rect) {
	for i, b := range s.balancers {
		from := balls[i]
		bus := from.y + ballHeight + 12 + 10*i
		for _, key := range b.groups {
			for _, to := range s.boxes[key] {
				x := to.x - 10 - 12 - 7*(i%3)
				y := to.y + 12 + 10*(i%3)
				s.line("flow", [2]int{from.x + from.w/2, from.y + ballHeight}, [2]int{from.x + from.w/2, bus},
					[2]int{x, bus}, [2]int{x, y}, [2]int{to.x - 1, y})
			}
		}
	}
}

// Columns of the table of flows: from whom, to whom, what.
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

func (s *sheet) flowTable() {
	if len(s.flows) == 0 {
		return
	}
	s.y += 30
	s.text(margin, s.y, 600, "head", "Who may speak to whom (security groups)")
	s.y += 12
	s.flowRow("cellhead", flow{from: "from", to: "to", ports: "ports"})
	for _, f := range s.flows {
		s.flowRow("cell", f)
	}
}

func (s *sheet) flowRow(style string, f flow) {
	x := margin
	for _, c := range []struct {
		w    int
		text string
	}{{flowFrom, f.from}, {flowTo, f.to}, {flowPorts, f.ports}} {
		s.f(`<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`, style, x, s.y, c.w, rowHeight)
		s.text(x+8, s.y+17, c.w-16, "line", c.text)
		x += c.w
	}
	s.y += rowHeight
}

func (s *sheet) footer(width int) {
	s.y += margin
	if len(s.notes) > 0 {
		s.text(margin, s.y, width-2*margin, "dim", fmt.Sprintf("Also: %s.", strings.Join(s.notes, ", ")))
		s.y += margin
	}
}
