// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"strings"
	"unicode"
)

// head reads a property's name and its options from its aws tag.
func head(tag string) (name, opts string) {
	name, opts, _ = strings.Cut(tag, ",")
	return name, opts
}

func has(opts, option string) bool {
	for o := range strings.SplitSeq(opts, ",") {
		if o == option {
			return true
		}
	}
	return false
}

// flags sets what the options of the aws tag say.
func (f *Field) flags(opts string) {
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "immutable":
			f.Immutable = true
		case "always":
			f.Always = true
		case "set":
			f.Set = true
		case "write":
			f.Write = true
		case "tags":
			f.Tags = true
		case "whole":
			f.Whole = true
		case "param":
			f.Render.Param = true
		case "scale":
			f.Render.ParamScale = true
		case "propagated":
			f.Render.Propagated = true
		}
	}
}

// options reads the tf and cfn tags into r and returns Terraform's name; empty if the tags say none.
func (r *Render) options(tfTag, cfnTag string) string {
	attribute, tf, _ := strings.Cut(tfTag, ",")
	for o := range strings.SplitSeq(tf, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "inline":
			r.Inline = true
		case "one":
			r.One = true
		case "options":
			r.Options = true
		case "is":
			r.Is = value
		}
	}
	r.cloudFormation(cfnTag)
	return attribute
}

// cloudFormation reads the cfn tag.
func (r *Render) cloudFormation(tag string) {
	for o := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "text":
			r.Text = true
		case "of":
			r.TagsOf = value
		case "type":
			r.ParamType = value
		case "-":
			r.Without = true
		case "apart":
			r.Apart = value
		case "with":
			r.ApartWith = value
		}
	}
}

// Snake turns CidrBlock into cidr_block and DNSName into dns_name, as Terraform spells names.
func Snake(s string) string {
	rs := []rune(s)
	var b strings.Builder
	for i, r := range rs {
		if unicode.IsUpper(r) && i > 0 {
			afterLower := !unicode.IsUpper(rs[i-1])
			beforeLower := i+1 < len(rs) && unicode.IsLower(rs[i+1])
			if afterLower || beforeLower {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
