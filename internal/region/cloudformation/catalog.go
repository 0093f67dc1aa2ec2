// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "github.com/slipway-k8s/slipway/internal/region/cloudformation/template"

// catalog tells the template language which resource types the region has.
type catalog struct{}

// HasType implements [template.Catalog].
func (catalog) HasType(typeName string) bool {
	_, ok := resourceTypes()[typeName]
	return ok
}

// HasAttribute implements [template.Catalog].
func (catalog) HasAttribute(typeName, attribute string) bool {
	return hasAttribute(typeName, attribute)
}

// SupportsSnapshot implements [template.Catalog].
func (catalog) SupportsSnapshot(typeName string) bool { return typeName == "AWS::EC2::Volume" }

func parseTemplate(body string) (*template.Template, error) { return template.Parse(body, catalog{}) }
