// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"strings"
	"unicode"
)

// splitTag splits an aws tag into the property's name and its options.
func splitTag(tag string) (name, opts string) {
	name, opts, _ = strings.Cut(tag, ",")
	return name, opts
}

func hasOption(opts, option string) bool {
	for o := range strings.SplitSeq(opts, ",") {
		if o == option {
			return true
		}
	}

	return false
}

// setFlags sets the flags of f from the options of its aws tag.
func (f *Field) setFlags(opts string) {
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "immutable":
			f.Immutable = true
		case "always":
			f.EnforceZero = true
		case "set":
			f.Unordered = true
		case "write":
			f.WriteOnly = true
		case "tags":
			f.IsTags = true
		case "whole":
			f.EnforceAbsence = true
		case "param":
			f.Render.IsParameter = true
		case "scale":
			f.Render.IsScaleParameter = true
		case "propagated":
			f.Render.Propagated = true
		}
	}
}

// parseTags reads the tf and cfn tags into r and returns Terraform's name; empty if the tf tag does not set
// it.
func (r *RenderHints) parseTags(tfTag, cfnTag string) string {
	attribute, tf, _ := strings.Cut(tfTag, ",")
	for o := range strings.SplitSeq(tf, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "inline":
			r.TerraformInline = true
		case "one":
			r.TerraformSingle = true
		case "options":
			r.TerraformOptions = true
		case "is":
			r.TerraformTrueValue = value
		}
	}

	r.parseCloudFormationTag(cfnTag)

	return attribute
}

// parseCloudFormationTag reads the cfn tag into r.
func (r *RenderHints) parseCloudFormationTag(tag string) {
	for o := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "text":
			r.CloudFormationString = true
		case "of":
			r.TagResourceType = value
		case "type":
			r.ParameterType = value
		case "-":
			r.CloudFormationOmit = true
		case "false":
			r.CloudFormationDefaultsFalse = true
		case "apart":
			r.CloudFormationOwnType = value
		case "with":
			r.CloudFormationParentProperty = value
		}
	}
}

// Snake converts a property's name to Terraform's spelling: CidrBlock to cidr_block, DNSName to dns_name.
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
