// argocd-lua runs health checks as Argo CD does (util/lua/lua.go of argo-cd): by gopher-lua, with the same libraries and
// time. It reads a list of {script, object} and writes a list of [status, message].
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

type check struct {
	Script string         `json:"script"`
	Object map[string]any `json:"object"`
}

func main() {
	var checks []check
	if err := json.NewDecoder(os.Stdin).Decode(&checks); err != nil {
		fail(err)
	}
	found := [][2]string{}
	for _, one := range checks {
		status, message, err := run(one)
		if err != nil {
			fail(err)
		}
		found = append(found, [2]string{status, message})
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(err)
	}
}

func run(one check) (string, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	ends, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ends)
	state.SetGlobal("obj", value(state, one.Object))
	if err := state.DoString(one.Script); err != nil {
		return "", "", err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returned no table")
	}
	return table.RawGetString("status").String(), table.RawGetString("message").String(), nil
}

func value(state *lua.LState, given any) lua.LValue {
	switch known := given.(type) {
	case bool:
		return lua.LBool(known)
	case float64:
		return lua.LNumber(known)
	case string:
		return lua.LString(known)
	case []any:
		table := state.CreateTable(len(known), 0)
		for _, item := range known {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(known))
		for key, item := range known {
			table.RawSetString(key, value(state, item))
		}
		return table
	}
	return lua.LNil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
