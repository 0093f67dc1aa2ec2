// SPDX-License-Identifier: Apache-2.0

package referencedata

// ServiceReferenceFile is the file of data/ with a [ServiceReference]; hack/servicereference writes it.
const ServiceReferenceFile = "service-reference.json"

// ServiceReference is AWS's Service Authorization Reference of some services: what a policy can name.
type ServiceReference struct {
	// Source names where the data is from, with the version.
	Source string
	// Services are the services by the prefix of their actions, such as ec2.
	Services map[string]Service
}

// Service is what policies can name of one service.
type Service struct {
	// Actions are the actions by name, such as AttachVolume.
	Actions map[string]Action
	// Resources are the types of resources by name, such as volume.
	Resources map[string]Resource
}

// Action is what a statement with an action can name.
type Action struct {
	// Keys are the condition keys of the action, whatever the resource is.
	Keys []string `json:",omitempty"`
	// Resources are the types of resources that a statement can name with the action, and the condition keys that the
	// action has for each of them. An action without types needs the resource "*".
	Resources map[string][]string `json:",omitempty"`
}

// Resource is a type of resources.
type Resource struct {
	// ARN is the pattern of its ARNs, with variables such as ${Region}.
	ARN string
	// Keys are the condition keys of the type.
	Keys []string `json:",omitempty"`
}
